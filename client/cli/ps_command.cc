// fargpu ps: the sessions of a server.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/server_query.h"

namespace fargpu::cli {

namespace {

constexpr auto kLimit = std::chrono::seconds(10);

std::string age(double seconds) {
  char text[32];
  if (seconds < 120) {
    std::snprintf(text, sizeof(text), "%.1f s", seconds);
  } else if (seconds < 7200) {
    std::snprintf(text, sizeof(text), "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof(text), "%.1f h", seconds / 3600);
  }
  return text;
}

int list_sessions(const ServerOptions& options) {
  if (Status status = export_server(options); !status.ok()) return fail(status);
  auto target = target_from_environment();
  if (!target) return fail(target.status());
  auto status = query_status(*target, transport::Clock::now() + kLimit);
  if (!status) return fail(status.status());
  std::printf("%-8s  %-8s  %-10s  %-12s  %-12s  %-10s  %-24s  %-9s  %s\n", "SESSION", "PID", "AGE",
              "MEMORY", "LIMIT", "CALLS", "PEER", "TRANSPORT", "CLIENT");
  for (const SessionStatus& session : status->sessions) {
    std::string limit =
        session.memory_limit_bytes == 0 ? "none" : format_bytes(session.memory_limit_bytes);
    std::printf("%-8llu  %-8d  %-10s  %-12s  %-12s  %-10llu  %-24s  %-9s  %s\n",
                static_cast<unsigned long long>(session.id), session.worker_pid,
                age(session.seconds).c_str(), format_bytes(session.memory_used_bytes).c_str(),
                limit.c_str(), static_cast<unsigned long long>(session.calls), session.peer.c_str(),
                session.transport.c_str(), session.client.c_str());
    for (const std::string& gpu : session.gpus) std::printf("          on %s\n", gpu.c_str());
  }
  std::printf("%zu sessions\n", status->sessions.size());
  return kSuccess;
}

}  // namespace

void add_ps(CLI::App& app, Command& command) {
  CLI::App* ps_app = app.add_subcommand("ps", "List the sessions of a server");
  auto options = std::make_shared<ServerOptions>();
  add_server_options(*ps_app, *options);
  ps_app->callback(
      [options, &command] { command = [options] { return list_sessions(*options); }; });
}

}  // namespace fargpu::cli
