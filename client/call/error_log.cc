#include "client/call/error_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/descriptors.h"
#include "common/base/log.h"
#include "generated/schema/result_names.h"

namespace fargpu::client::error_log {
namespace {

constexpr std::string_view kRolledOver =
    "Log buffer has rolled over since the previous dump. The oldest messages will be missing\n";
constexpr std::string_view kTooSmall =
    "The provided buffer is not large enough to hold all messages. Some messages will be missing\n";

struct Callback {
  CUlogsCallback function;
  void* data;
  CUlogsCallbackHandle handle;
};

struct Log {
  std::mutex mutex;
  std::array<std::string, kMessages> lines;  // by number, modulo
  CUlogIterator next = 0;
  std::vector<Callback> callbacks;
  uintptr_t last_handle = 0;
  int file = -1;
  bool opened = false;
};

// Never destroyed: calls come until the very end of the process.
Log& the_log() {
  static auto& log = *new Log;
  return log;
}

int open_file() {
  const char* const setting = std::getenv("CUDA_LOG_FILE");
  if (setting == nullptr || *setting == '\0') return -1;
  const std::string_view path = setting;
  if (path == "stdout") return STDOUT_FILENO;
  if (path == "stderr") return STDERR_FILENO;
  const int file =
      descriptors::open_file(setting, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644).release();
  if (file < 0) log::warn("CUDA_LOG_FILE={}: cannot be opened: {}", path, std::strerror(errno));
  return file;
}

std::string line_of(const char* message) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  ::localtime_r(&now.tv_sec, &parts);
  return fmt::format("[{:02}:{:02}:{:02}.{:03}][{}][CUDA][E] {}\n", parts.tm_hour, parts.tm_min,
                     parts.tm_sec, now.tv_nsec / 1000000, static_cast<uint64_t>(::pthread_self()),
                     message);
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(descriptors::own(file), text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    text.remove_prefix(static_cast<size_t>(done));
  }
}

void add(const char* message) {
  Log& log = the_log();
  std::vector<Callback> callbacks;
  {
    const std::lock_guard lock(log.mutex);
    std::string& line = log.lines[log.next % kMessages];
    line = line_of(message);
    ++log.next;
    if (!std::exchange(log.opened, true)) log.file = open_file();
    if (log.file >= 0) write_all(log.file, line);
    callbacks = log.callbacks;
  }
  std::string text = message;
  for (const Callback& each : callbacks)
    each.function(each.data, CU_LOG_LEVEL_ERROR, text.data(), text.size());
}

// The messages from `first` on, with the lock held. `rolled`: older ones were asked for.
struct Range {
  CUlogIterator first = 0;
  bool rolled = false;
};
bool find(const Log& log, const CUlogIterator* iterator, Range* range) {
  const CUlogIterator oldest = log.next - std::min(log.next, kMessages);
  const CUlogIterator wanted = iterator == nullptr ? 0 : *iterator;
  if (wanted > log.next) return false;
  *range = {std::max(wanted, oldest), wanted < oldest};
  return true;
}

}  // namespace

void note(const char* function, CUresult result) {
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY ||
      result == CUDA_ERROR_NOT_INITIALIZED)
    return;
  const char* const name = schema::result_name(static_cast<int>(result));
  add(fmt::format("Returning {} ({}) from {}", static_cast<int>(result),
                  name == nullptr ? "unknown" : name, function)
          .c_str());
}

void explain(const char* message) { add(message); }

void add_callback(CUlogsCallback callback, void* data, CUlogsCallbackHandle* handle) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  const auto made = reinterpret_cast<CUlogsCallbackHandle>(++log.last_handle);
  log.callbacks.push_back({callback, data, made});
  if (handle != nullptr) *handle = made;
}

bool remove_callback(CUlogsCallbackHandle handle) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  return std::erase_if(log.callbacks,
                       [&](const Callback& each) { return each.handle == handle; }) != 0;
}

CUlogIterator current() {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  return log.next;
}

CUresult dump_to_file(CUlogIterator* iterator, const char* path) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  Range range;
  if (!find(log, iterator, &range)) return CUDA_ERROR_INVALID_VALUE;
  const Fd file = descriptors::open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (!file.valid()) return CUDA_ERROR_INVALID_VALUE;
  if (range.rolled) write_all(file.get(), kRolledOver);
  for (CUlogIterator i = range.first; i != log.next; ++i)
    write_all(file.get(), log.lines[i % kMessages]);
  if (iterator != nullptr) *iterator = log.next;
  return CUDA_SUCCESS;
}

CUresult dump_to_memory(CUlogIterator* iterator, char* buffer, size_t* size) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  const size_t room = std::exchange(*size, 0);
  Range range;
  if (!find(log, iterator, &range)) return CUDA_ERROR_INVALID_VALUE;
  if (range.first == log.next) {
    if (room > 0) *buffer = '\0';
    return CUDA_SUCCESS;
  }
  // The newest ones that fit, behind a line that says what is missing.
  size_t bytes = range.rolled ? kRolledOver.size() : 0;
  for (CUlogIterator i = range.first; i != log.next; ++i) bytes += log.lines[i % kMessages].size();
  std::string_view head = range.rolled ? kRolledOver : std::string_view();
  if (bytes >= room) {
    head = kTooSmall;
    bytes = head.size();
    range.first = log.next;
    const CUlogIterator oldest = log.next - std::min(log.next, kMessages);
    while (range.first != oldest) {
      const size_t more = log.lines[(range.first - 1) % kMessages].size();
      if (bytes + more >= room) break;
      bytes += more;
      --range.first;
    }
    if (range.first == log.next) {
      if (room > 0) *buffer = '\0';
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  char* end = std::copy(head.begin(), head.end(), buffer);
  for (CUlogIterator i = range.first; i != log.next; ++i) {
    const std::string& line = log.lines[i % kMessages];
    end = std::copy(line.begin(), line.end(), end);
  }
  *end = '\0';
  *size = bytes;
  if (iterator != nullptr) *iterator = log.next;
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client::error_log
