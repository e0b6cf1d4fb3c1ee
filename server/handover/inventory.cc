#include "server/handover/inventory.h"

#include <fmt/core.h>
#include <signal.h>

#include "server/handover/control_socket.h"
#include "server/handover/worker_messages.h"
#include "server/launch/launcher.h"

namespace fargpu::server {
namespace {

// the first cuInit after boot loads firmware
constexpr auto kProbeLimit = std::chrono::seconds(120);

Result<ReceivedMessage> answer_on(int socket) {
  const auto deadline = transport::Clock::now() + kProbeLimit;
  FARGPU_ASSIGN_OR_RETURN(const ReceivedMessage first, receive_message(socket, deadline));
  FARGPU_RETURN_IF_ERROR(check_started(first).status());
  return receive_message(socket, deadline);
}

}  // namespace

Result<Inventory> probe(Launcher& launcher, const std::string& worker_program,
                        const std::string& driver,
                        const std::vector<std::pair<std::string, std::string>>& environment) {
  FARGPU_ASSIGN_OR_RETURN(auto sockets, make_control_sockets());
  ProcessSetup setup;
  setup.program = worker_program;
  setup.environment = environment;
  setup.descriptors = {{sockets.second.get(), kControlFd}};
  // Sent before the probe starts, so that the message is there when it looks.
  const ProbeRequest request{driver, /*measures_contexts=*/true};
  FARGPU_RETURN_IF_ERROR(
      send_message(sockets.first.get(), encode_probe(request), transport::Clock::now()));
  FARGPU_ASSIGN_OR_RETURN(const auto process, launcher.start(setup));
  sockets.second.reset();
  const auto answer = answer_on(sockets.first.get());
  const bool ends = answer.ok() || answer.status().code() == StatusCode::kLost;
  if (!ends) process->signal(SIGKILL);
  // One that hangs in the system is left.
  const auto end = await_end(*process, transport::Clock::now() + std::chrono::seconds(5));
  if (answer.ok()) return parse_inventory(answer->body());
  if (answer.status().code() == StatusCode::kTimeout) {
    return Status(StatusCode::kTimeout,
                  fmt::format("the probe of driver '{}' did not answer within {} s", driver,
                              kProbeLimit.count()));
  }
  if (!ends) return answer.status();
  return Status(StatusCode::kDriver, fmt::format("the probe of driver '{}' {}", driver,
                                                 end ? end->describe() : "did not end"));
}

}  // namespace fargpu::server
