#include "sim/base/program_report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "common/base/log.h"

namespace fargpu::sim {
namespace {

// A worker sends the log elsewhere (log::to_descriptor) and gives its client what stderr receives.
bool stderr_is_the_programs() {
  static const bool redirected = std::getenv("FARGPU_LOG_FD") != nullptr;
  return redirected;
}

}  // namespace

std::string ProgramReport::next(std::string_view text) {
  if (lines_ > kMostLines) return {};
  std::string line = "fargpu: simulated GPU: " + std::string(text.substr(0, kMostBytes));
  if (text.size() > kMostBytes) line += " ...";
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r' || c == '\0'; }, ' ');
  line += '\n';
  if (shown_.find(line) != std::string::npos) return {};
  if (++lines_ > kMostLines) return "fargpu: simulated GPU: no further lines are shown\n";
  shown_ += line;
  return line;
}

void report_to_program(std::string_view text) {
  if (!stderr_is_the_programs()) {
    log::error("{}", text);
    return;
  }
  if (!log::enabled(log::Level::kError)) return;
  log::info("{}", text);
  static std::mutex mutex;
  static auto& report = *new ProgramReport;  // threads of streams may outlive static objects
  std::lock_guard lock(mutex);
  const std::string line = report.next(text);
  if (!line.empty()) [[maybe_unused]]
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace fargpu::sim
