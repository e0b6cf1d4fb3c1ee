#include "common/base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/descriptors.h"
#include "common/base/env.h"
#include "common/base/fd.h"
#include "common/base/printable.h"
#include "common/base/since_load.h"

namespace fargpu::log {
namespace {

constexpr int kUnconfigured = -1;
// With level and end of line in one piece that a pipe takes whole, and the daemon, too.
constexpr size_t kMostForDaemon = 1000;

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

// One write(2) per line, as far as it is taken at once: lines of processes that share a file or a
// terminal do not mix.
class DescriptorSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  // Writes to `file`, or to `other` if there is none.
  DescriptorSink(Fd file, int other) : file_(std::move(file)), other_(other) {}

  bool is_empty() const { return kept_.empty() && lost_ == 0; }
  void never_wait(std::function<void()> on_kept) {
    if (waits_) open_without_waits();
    waits_ = false;
    on_kept_ = std::move(on_kept);
  }

 private:
  static constexpr size_t kMostKept = 256u << 10;

  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const std::string_view text(line.data(), line.size());
    if (waits_) {
      [[maybe_unused]] const ssize_t written = ::write(descriptor(), text.data(), text.size());
      return;
    }
    flush_();
    const size_t written = is_empty() ? put(text) : 0;
    if (written == text.size()) return;
    if (written > 0 || kept_bytes_ + text.size() <= kMostKept) {
      keep(text.substr(written));
    } else {
      ++lost_;
    }
    if (on_kept_) on_kept_();
  }

  void flush_() override {
    while (!kept_.empty()) {
      const size_t written = put(kept_.front());
      kept_bytes_ -= written;
      kept_.front().erase(0, written);
      if (!kept_.front().empty()) return;
      kept_.pop_front();
    }
    if (lost_ == 0) return;
    const std::string text =
        fmt::format("event=log-lines-lost lines={} why=\"the log did not take them\"", lost_);
    spdlog::memory_buf_t line;
    formatter_->format({"log", spdlog::level::warn, text}, line);
    const std::string_view whole(line.data(), line.size());
    const size_t written = put(whole);
    if (written == 0) return;
    lost_ = 0;
    if (written < whole.size()) keep(whole.substr(written));
  }

  void keep(std::string_view text) {
    kept_.emplace_back(text);
    kept_bytes_ += text.size();
  }

  // A descriptor of stderr is other processes' as well, so its flags are left alone: a pipe or a
  // terminal is opened once more.
  void open_without_waits() {
    struct stat about {};
    if (::fstat(descriptor(), &about) != 0) return;
    is_socket_ = S_ISSOCK(about.st_mode);
    const bool may_wait = S_ISFIFO(about.st_mode) || S_ISCHR(about.st_mode);
    if (!may_wait || (::fcntl(descriptor(), F_GETFL) & O_NONBLOCK) != 0) return;
    const std::string path = fmt::format("/proc/self/fd/{}", descriptor());
    Fd again = descriptors::open_file(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY, 0);
    if (again.valid()) file_ = std::move(again);
  }

  int descriptor() const { return file_.valid() ? descriptors::own(file_.get()) : other_; }
  // How many bytes were taken. Where a pipe or terminal could not be opened once more, it is asked
  // before.
  size_t put(std::string_view text) const {
    ssize_t written = 0;
    if (is_socket_) {
      written = ::send(descriptor(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
      pollfd entry{descriptor(), POLLOUT, 0};
      if (::poll(&entry, 1, 0) == 1) written = ::write(descriptor(), text.data(), text.size());
    }
    return written > 0 ? static_cast<size_t>(written) : 0;
  }

  Fd file_;
  const int other_;
  bool waits_ = true, is_socket_ = false;
  std::function<void()> on_kept_;
  std::deque<std::string> kept_;
  size_t kept_bytes_ = 0;
  uint64_t lost_ = 0;
};

struct Backend {
  std::mutex mutex;  // guards the rest; held over fork, so that a child never inherits it locked
  std::shared_ptr<DescriptorSink> sink;
  std::shared_ptr<spdlog::logger> logger;
  std::string complaint;  // of the settings: logged once, although each of our parts configures
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
std::atomic<size_t> most_text{kMostText};

std::atomic<const Filter*> filter{nullptr};

int configured_threshold() {
  int level = threshold.load(std::memory_order_relaxed);
  if (level == kUnconfigured) {
    configure("fargpu", Level::kWarn);
    level = threshold.load(std::memory_order_relaxed);
  }
  return level;
}

}  // namespace

bool configure(std::string_view component, Level default_level) {
  Level level = default_level;
  bool is_level = true;
  std::string complaint;
  if (const auto text = env_text("FARGPU_LOG")) {
    if (auto parsed = level_from_text(*text)) {
      level = *parsed;
    } else {
      is_level = false;
      complaint = fmt::format(
          "FARGPU_LOG='{}' is not a level: use trace, debug, info, warn, error or off", *text);
    }
  }
  const bool for_daemon = env_text(kForDaemonVariable).has_value();
  Fd file;
  if (const auto path = env_text("FARGPU_LOG_FILE"); path && !for_daemon) {
    file = descriptors::open_file(path->c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (!file.valid()) {
      complaint = fmt::format("cannot append to FARGPU_LOG_FILE='{}': {}{}; logging to stderr",
                              *path, std::generic_category().message(errno), explanation(errno));
    }
  }
  auto sink = std::make_shared<DescriptorSink>(std::move(file), usual_descriptor());
  if (for_daemon) {
    sink->never_wait(nullptr);
    most_text.store(kMostForDaemon, std::memory_order_relaxed);
  }
  auto logger = std::make_shared<spdlog::logger>(std::string(component), sink);
  logger->set_pattern(for_daemon ? "<%l>%v" : "%Y-%m-%d %H:%M:%S.%e %-5l %n: %v");
  logger->set_level(spdlog::level::trace);  // the threshold is ours
  {
    std::lock_guard lock(backend().mutex);
    backend().sink = std::move(sink);
    backend().logger = std::move(logger);
    if (backend().complaint == complaint) complaint.clear();
    if (!complaint.empty()) backend().complaint = complaint;
  }
  threshold.store(static_cast<int>(level), std::memory_order_relaxed);
  if (!complaint.empty()) warn("{}", complaint);
  return is_level;
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
  const Filter* const asked = filter.load(std::memory_order_acquire);
  if (asked != nullptr && !(*asked)(text)) return;
  const std::string line = printable_line(text, most_text.load(std::memory_order_relaxed));
  std::lock_guard lock(backend().mutex);
  backend().logger->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

void write_as(std::string_view component, Level level, std::string_view text) {
  if (!enabled(level)) return;
  const std::string line = printable_line(text, kMostText);
  std::lock_guard lock(backend().mutex);
  backend().sink->log({spdlog::string_view_t(component.data(), component.size()), to_spdlog(level),
                       spdlog::string_view_t(line.data(), line.size())});
}

std::pair<Level, std::string_view> from_process(std::string_view line) {
  const size_t end = line.find('>');
  if (line.starts_with('<') && end != std::string_view::npos) {
    // As spdlog writes it, which has other names for two levels.
    const std::string_view name = line.substr(1, end - 1);
    const auto level = name == "warning" ? Level::kWarn : level_from_text(name);
    if (level) return {*level, line.substr(end + 1)};
  }
  return {Level::kWarn, line};
}

void set_filter(const Filter* asked) { filter.store(asked, std::memory_order_release); }

void never_wait(std::function<void()> on_kept) {
  (void)enabled(Level::kError);  // there is a sink
  std::lock_guard lock(backend().mutex);
  backend().sink->never_wait(std::move(on_kept));
}

bool flush() {
  std::lock_guard lock(backend().mutex);
  if (!backend().sink) return true;
  backend().sink->flush();
  return backend().sink->is_empty();
}

}  // namespace fargpu::log
