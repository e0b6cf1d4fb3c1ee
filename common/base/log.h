// Logging of all fargpu programs and libraries, over spdlog (hidden in log.cc, so that no header
// pulls it in).
//
// One line per event, written to stderr by default: time, level, component, text. Texts may hold
// bytes of others: control characters and the like are written as \xNN (common/base/printable.h),
// and what is beyond kMostText is cut. Environment FARGPU_LOG sets the level (trace, debug, info,
// warn, error, off; default warn in the client, info in the daemon and worker), FARGPU_LOG_FILE a
// file to append to. All functions are thread safe; a message below the level costs one relaxed
// load. Never log on a hot path.
//
// The processes of a daemon write no log of their own: their lines, "<level>text", go to the daemon
// over stderr (kForDaemonVariable), which writes them under their names.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string_view>
#include <utility>

namespace fargpu::log {

enum class Level { kTrace, kDebug, kInfo, kWarn, kError, kOff };

inline constexpr size_t kMostText = 8192;  // bytes of a line's text
// Set in the environment of a daemon's processes.
inline constexpr const char* kForDaemonVariable = "FARGPU_LOG_FOR_DAEMON";

// Names the component ("client", "daemon", "worker 17", "sim") and the default level. Call once,
// early; may be called again. False: FARGPU_LOG is no level; a line says so, once in a process.
bool configure(std::string_view component, Level default_level);
// From now on lines go to this descriptor instead of stderr; also lines of libraries that are
// opened later with a copy of this log (the simulated driver): it is handed on in FARGPU_LOG_FD. It
// stays open. Early, like configure().
void to_descriptor(int descriptor);
bool enabled(Level level);
void write(Level level, std::string_view text);
// A line of another process, under the name of that component. The filter is not asked about it.
void write_as(std::string_view component, Level level, std::string_view text);
// Level and text of a line of a daemon's process; kWarn for a line that has no level, which is a
// library's.
std::pair<Level, std::string_view> from_process(std::string_view line);

using Filter = std::function<bool(std::string_view text)>;
// From now on write() asks it about each line, and leaves out those for which it says false. None:
// nullptr. It may log itself.
void set_filter(const Filter* filter);
// From now on no thread waits for the reader of the log: lines that do not fit are kept, up to 256
// KiB, and counted beyond that; a line gives the number of lost lines. `on_kept` is called for each
// line that is kept or lost, from a thread that logs, and must not log.
void never_wait(std::function<void()> on_kept);
// Writes what was kept, as far as that is possible now. False: there is something left.
bool flush();

template <typename... Args>
void format(Level level, fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(level)) write(level, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
  format(Level::kDebug, text, std::forward<Args>(args)...);
}
template <typename... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
  format(Level::kInfo, text, std::forward<Args>(args)...);
}
template <typename... Args>
void warn(fmt::format_string<Args...> text, Args&&... args) {
  format(Level::kWarn, text, std::forward<Args>(args)...);
}
template <typename... Args>
void error(fmt::format_string<Args...> text, Args&&... args) {
  format(Level::kError, text, std::forward<Args>(args)...);
}

}  // namespace fargpu::log
