// SessionWatch: stands in for the executor while that is inside a driver call which does not return
// for a while.
//
// A driver lets a launch wait while about a thousand others are queued ahead of it, for as long as
// those take. Meanwhile nobody would answer the client's pings, and nobody would see that the
// client is gone. So the watch tells the client every few seconds that the worker lives (notice
// alive), and ends the worker when the client has been gone for a while: the GPU must be free
// again, also when the call never returns. It also reads what the daemon says (session_commands.h),
// so that this is heard in the meantime.
//
// A thread of its own. It sleeps without waking while nothing happens in the session.
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

// What the executor tells the watch, on its own thread: three stores and a load for each piece
// of work.
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
  // The watch has seen that the client is gone. Relaxed: it is looked at again.
  bool peer_gone() const { return peer_gone_.load(std::memory_order_relaxed); }

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
  std::atomic<bool> peer_gone_{false};
  const EventFd* waker_ = nullptr;  // set before the executor starts
};

// What the daemon says, to be read on the watch's thread.
struct WatchedCommands {
  int descriptor = -1;         // -1: none
  std::function<bool()> take;  // called when it is readable; false: never again
};

class SessionWatch {
 public:
  struct Options {
    // A client declares the session lost after 15 s without a byte.
    std::chrono::milliseconds alive_every{2000};
    // What the executor gets to end the session in order once the client is gone.
    std::chrono::milliseconds grace{5000};
  };

  // `peer`: ends when the client does (Transport::peer_socket()); a duplicate is watched. `alive`
  // is called every alive_every while there is work; `stuck` when the client has been gone for
  // `grace` and work still goes on. Both on the watch's thread. `activity` outlives the watch.
  static Result<std::unique_ptr<SessionWatch>> start(int peer, Activity& activity,
                                                     std::function<void()> alive,
                                                     std::function<void()> stuck,
                                                     const Options& options,
                                                     WatchedCommands commands = {});
  ~SessionWatch();
  SessionWatch(const SessionWatch&) = delete;
  SessionWatch& operator=(const SessionWatch&) = delete;

 private:
  SessionWatch(Fd peer, EventFd waker, Activity& activity, std::function<void()> alive,
               std::function<void()> stuck, const Options& options, WatchedCommands commands);
  void watch();
  bool stop_requested(std::chrono::milliseconds within);

  const Fd peer_;
  const EventFd waker_;
  Activity& activity_;
  const std::function<void()> alive_, stuck_;
  const Options options_;
  WatchedCommands commands_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace fargpu::server
