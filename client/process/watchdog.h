// Watchdog: reports calls that take too long on stderr, with stream, thread and the worker's
// present work. Off by default; FARGPU_WATCHDOG=10s switches it on and sets the limit.
//
// Each such call is reported once. Off, it costs one relaxed load per call. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>

namespace fargpu::client {

namespace watchdog {

struct Slot;

inline std::atomic<bool> is_on{false};
inline bool enabled() { return is_on.load(std::memory_order_relaxed); }

// Starts the thread that looks. Once.
void start(std::chrono::microseconds limit);
// Call in a forked child: the thread does not exist there.
void abandon_after_fork();

// enter() and leave() enclose one call of the application. nullptr: all slots are in use, and the
// call is not watched.
Slot* enter(const char* name);
void leave(Slot* slot);
// The stream of the calling thread's call under way, as the application gave it.
void note_stream(CUstream stream);

}  // namespace watchdog
}  // namespace fargpu::client
