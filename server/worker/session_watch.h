// SessionWatch: a thread that acts for the executor while that is inside a long driver call.
//
// A launch blocks in the driver while about a thousand others are queued ahead of it. During that
// time the executor answers no pings and does not notice that the client is gone. The watch sends
// the client a notice `alive` every few seconds. When the client has been gone for `grace`, it ends
// the worker, so that the GPU is free again even if the call never returns. It also reads the
// daemon's commands (session_commands.h).
//
// While the session is idle it wakes only to look whether the client's host is still there.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::server {

// The executor's state for the watch. The executor pays three stores and a load per piece of work.
class Activity {
 public:
  void begin(uint16_t opcode = 0) {
    opcode_.store(opcode, std::memory_order_relaxed);
    count_.store(++mine_, std::memory_order_release);  // odd: at work
    if (parked_.load(std::memory_order_relaxed)) [[unlikely]]
      unpark();
  }
  // Of the call that it executes or executed last; 0: its own work.
  uint16_t opcode() const { return opcode_.load(std::memory_order_relaxed); }
  void end() { count_.store(++mine_, std::memory_order_release); }
  // The watch has seen that the client is gone. Relaxed: the executor asks repeatedly.
  bool peer_gone() const { return peer_gone_.load(std::memory_order_relaxed); }
  // And the reason: its host answers nothing. Known before the connection ends.
  bool host_silent() const { return host_silent_.load(std::memory_order_acquire); }

 private:
  friend class SessionWatch;
  void unpark() {
    parked_.store(false, std::memory_order_relaxed);
    if (waker_ != nullptr) waker_->signal();
  }

  std::atomic<uint16_t> opcode_{0};
  uint64_t mine_ = 0;  // the executor's copy of count_
  std::atomic<uint64_t> count_{0};
  std::atomic<bool> parked_{false};  // the watch sleeps until it is signalled
  std::atomic<bool> peer_gone_{false}, host_silent_{false};
  const EventFd* waker_ = nullptr;  // set before the executor starts
};

// Where the daemon's commands come from; read on the watch's thread.
struct WatchedCommands {
  int descriptor = -1;         // -1: none
  std::function<bool()> take;  // called when it is readable; false: never again
};

class SessionWatch {
 public:
  struct Options {
    // A client declares the session lost after 15 s without a byte.
    std::chrono::milliseconds alive_every{2000};
    // The executor's time to end the session in order once the client is gone.
    std::chrono::milliseconds grace{5000};
    // The connection ends when the client's host has been silent for this time (silent_host.h).
    std::chrono::milliseconds lost_after{0};
  };

  // `peer`: ends when the client does (Transport::peer_socket()); a duplicate is watched. `alive`
  // is called every alive_every while there is work; `stuck` when the client has been gone for
  // `grace` and work still goes on. Both on the watch's thread. `activity` outlives the watch, and
  // so does `process`, a pidfd of the client (-1: none): its end ends the connection here, where
  // the end of the peer may arrive late.
  static Result<std::unique_ptr<SessionWatch>> start(
      int peer, Activity& activity, std::function<void()> alive, std::function<void()> stuck,
      const Options& options, WatchedCommands commands = {}, int process = -1);
  ~SessionWatch();
  SessionWatch(const SessionWatch&) = delete;
  SessionWatch& operator=(const SessionWatch&) = delete;

 private:
  SessionWatch(Fd peer, EventFd waker, Activity& activity, std::function<void()> alive,
               std::function<void()> stuck, const Options& options, WatchedCommands commands,
               int process);
  void watch();
  bool stop_requested(std::chrono::milliseconds within);

  const Fd peer_;
  const EventFd waker_;
  Activity& activity_;
  const std::function<void()> alive_, stuck_;
  const Options options_;
  WatchedCommands commands_;
  const int process_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace fargpu::server
