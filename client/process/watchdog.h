// Watchdog: tells on stderr which call, stream and thread waits too long, and what the worker does
// meanwhile. Off by default; FARGPU_WATCHDOG=10s switches it on and says what is too long.
//
// Each call that takes longer is told once. Off, it costs one relaxed load per call. Any thread.
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
// In a forked child, which has no such thread.
void abandon_after_fork();

// Around one call of the application. nullptr: more calls are under way than the watchdog sees.
Slot* enter(const char* name);
void leave(Slot* slot);
// The stream of the calling thread's call under way, as the application gave it.
void note_stream(CUstream stream);

}  // namespace watchdog
}  // namespace fargpu::client
