// fargpu devices: the GPUs of a server, or of several.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/server_query.h"

namespace fargpu::cli {

namespace {

constexpr auto kDevicesLimit = std::chrono::seconds(10);

int show_devices(const Target& target) {
  auto status = query_status(target, transport::Clock::now() + kDevicesLimit);
  if (!status) return fail(status.status());
  std::printf("%-3s  %-40s  %-28s  %10s  %10s  %4s  %s\n", "GPU", "UUID", "NAME", "MEMORY",
              "RESERVED", "JOBS", "SESSIONS");
  int index = 0;
  for (const GpuStatus& gpu : status->gpus) {
    std::printf("%-3d  %-40s  %-28s  %10s  %10s  %4u  %u\n", index++, gpu.uuid.c_str(),
                gpu.name.c_str(), format_bytes(gpu.total_bytes).c_str(),
                format_bytes(gpu.reserved_bytes).c_str(), gpu.jobs, gpu.sessions);
    if (!gpu.out_of_service.empty())
      std::printf("     out of service: %s\n", gpu.out_of_service.c_str());
  }
  return kSuccess;
}

int devices(const ServerOptions& options) {
  if (Status status = export_server(options); !status.ok()) return fail(status);
  auto targets = targets_from_environment();
  if (!targets) return fail(targets.status());
  return for_each_server(*targets, show_devices);
}

}  // namespace

void add_devices(CLI::App& app, Command& command) {
  CLI::App* devices_app = app.add_subcommand("devices", "List the GPUs of a server");
  auto options = std::make_shared<ServerOptions>();
  add_server_options(*devices_app, *options);
  devices_app->callback([options, &command] { command = [options] { return devices(*options); }; });
}

}  // namespace fargpu::cli
