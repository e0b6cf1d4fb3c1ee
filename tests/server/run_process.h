// Starts a process as the daemon starts its workers, and collects what it prints.
#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "common/base/fd.h"
#include "server/launch/launcher.h"

namespace fargpu::server {

struct ProcessOutput {
  std::string text;  // its stdout, at most 1 MiB
  ProcessEnd end;
};
// Kills it at the deadline (kTimeout).
inline Result<ProcessOutput> run_process(Launcher& launcher, ProcessSetup setup,
                                         std::chrono::milliseconds limit) {
  constexpr size_t kMost = 1u << 20;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe", errno);
  Fd reading(ends[0]);
  Fd writing(ends[1]);
  setup.descriptors.emplace_back(writing.get(), 1);
  FARGPU_ASSIGN_OR_RETURN(const auto process, launcher.start(setup));
  writing.reset();

  ProcessOutput output;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  bool timed_out = false;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entry{reading.get(), POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&entry, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    char buffer[4096];
    const ssize_t got = ready > 0 ? ::read(reading.get(), buffer, sizeof buffer) : -1;
    if (ready > 0 && got < 0 && errno == EINTR) continue;
    timed_out = ready == 0;
    if (got > 0) output.text.append(buffer, static_cast<size_t>(got));
    if (got <= 0 || output.text.size() > kMost) break;
  }
  if (timed_out || output.text.size() > kMost) process->signal(SIGKILL);
  output.end = await_end(*process, transport::kNoDeadline).value_or(ProcessEnd{.code = -1});
  if (timed_out) {
    return Status(StatusCode::kTimeout, fmt::format("{} did not answer within {} s", setup.program,
                                                    limit.count() / 1000));
  }
  return output;
}

}  // namespace fargpu::server
