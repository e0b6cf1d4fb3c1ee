// Logging of all fargpu programs and libraries, over spdlog (hidden in log.cc, so that no header
// pulls it in).
//
// One line per event, written to stderr by default: time, level, component, text. Environment
// FARGPU_LOG sets the level (trace, debug, info, warn, error, off; default warn in the client, info
// in the daemon and worker), FARGPU_LOG_FILE a file to append to. All functions are thread safe; a
// message below the level costs one relaxed load. Never log on a hot path.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace fargpu::log {

enum class Level { kTrace, kDebug, kInfo, kWarn, kError, kOff };

// Names the component ("client", "daemon", "worker 17", "sim") and the default level. Call once,
// early; may be called again.
void configure(std::string_view component, Level default_level);
// From now on lines go to this descriptor instead of stderr; also lines of libraries that are
// opened later with a copy of this log (the simulated driver): it is handed on in FARGPU_LOG_FD. It
// stays open. Early, like configure().
void to_descriptor(int descriptor);
bool enabled(Level level);
void write(Level level, std::string_view text);

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
