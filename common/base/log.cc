#include "common/base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/descriptors.h"
#include "common/base/env.h"
#include "common/base/fd.h"
#include "common/base/since_load.h"

namespace fargpu::log {
namespace {

constexpr int kUnconfigured = -1;

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kTrace:
      return spdlog::level::trace;
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

std::optional<Level> level_from_text(std::string_view text) {
  static constexpr std::string_view kNames[] = {"trace", "debug", "info", "warn", "error", "off"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (text == kNames[i]) return static_cast<Level>(i);
  }
  return std::nullopt;
}

constexpr const char* kDescriptorVariable = "FARGPU_LOG_FD";

// stderr, or what to_descriptor() has named in this process.
int usual_descriptor() {
  const auto text = env_text(kDescriptorVariable);
  if (!text) return STDERR_FILENO;
  const int descriptor = std::atoi(text->c_str());
  return descriptor > STDERR_FILENO && ::fcntl(descriptor, F_GETFD) >= 0 ? descriptor
                                                                         : STDERR_FILENO;
}

// One write(2) per line: lines of several processes that share a file or a terminal do not mix.
class DescriptorSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  // Writes to `file`, or to `other` if there is none.
  DescriptorSink(Fd file, int other) : file_(std::move(file)), other_(other) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    [[maybe_unused]] ssize_t written =
        ::write(file_.valid() ? descriptors::own(file_.get()) : other_, line.data(), line.size());
  }
  void flush_() override {}

  const Fd file_;
  const int other_;
};

struct Backend {
  std::mutex mutex;  // guards logger; held over fork, so that a child never inherits it locked
  std::shared_ptr<spdlog::logger> logger;
};

// Never destroyed: threads and exit handlers of an application may log until the very end.
Backend& backend() {
  static Backend* instance = [] {
    auto* made = new Backend;
    ::pthread_atfork([] { backend().mutex.lock(); }, [] { backend().mutex.unlock(); },
                     [] { backend().mutex.unlock(); });
    return made;
  }();
  return *instance;
}

std::atomic<int> threshold{kUnconfigured};

int configured_threshold() {
  int level = threshold.load(std::memory_order_relaxed);
  if (level == kUnconfigured) {
    configure("fargpu", Level::kWarn);
    level = threshold.load(std::memory_order_relaxed);
  }
  return level;
}

}  // namespace

void configure(std::string_view component, Level default_level) {
  Level level = default_level;
  std::string complaint;
  if (const auto text = env_text("FARGPU_LOG")) {
    if (auto parsed = level_from_text(*text)) {
      level = *parsed;
    } else {
      complaint = fmt::format(
          "FARGPU_LOG='{}' is not a level: use trace, debug, info, warn, error or off", *text);
    }
  }
  Fd file;
  if (const auto path = env_text("FARGPU_LOG_FILE")) {
    file = descriptors::open_file(path->c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (!file.valid()) {
      complaint = fmt::format("cannot append to FARGPU_LOG_FILE='{}': {}{}; logging to stderr",
                              *path, std::generic_category().message(errno), explanation(errno));
    }
  }
  auto logger = std::make_shared<spdlog::logger>(
      std::string(component),
      std::make_shared<DescriptorSink>(std::move(file), usual_descriptor()));
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %-5l %n: %v");
  logger->set_level(spdlog::level::trace);  // the threshold is ours
  {
    std::lock_guard lock(backend().mutex);
    backend().logger = std::move(logger);
  }
  threshold.store(static_cast<int>(level), std::memory_order_relaxed);
  if (!complaint.empty()) warn("{}", complaint);
}

void to_descriptor(int descriptor) {
  ::setenv(kDescriptorVariable, std::to_string(descriptor).c_str(), 1);
  std::string component;
  {
    std::lock_guard lock(backend().mutex);
    if (backend().logger) component = backend().logger->name();
  }
  if (!component.empty()) configure(component, static_cast<Level>(threshold.load()));
}

bool enabled(Level level) {
  return static_cast<int>(level) >= configured_threshold() && level != Level::kOff;
}

void write(Level level, std::string_view text) {
  if (!enabled(level)) return;
  std::lock_guard lock(backend().mutex);
  backend().logger->log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace fargpu::log
