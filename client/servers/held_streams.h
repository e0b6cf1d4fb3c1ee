// Streams that wait for work of another server, which only this process can see.
//
// The stream is held at a gate: a wait for a word in memory of its own server. A thread of this
// class does what the stream waits for, and then writes the word. The calling thread does not wait.
// What is put into one stream is done in the order of the calls, by one thread at a time; what is
// put into different streams never waits for each other here. An error is kept by the stream's
// context and returned by a later call; the stream goes on.
//
// While a stream is held it counts as held by a host function (HostCalls::hold). A driver that has
// no waits for values in memory refuses: CUDA_ERROR_NOT_SUPPORTED. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "client/entry/own_streams.h"
#include "client/servers/cross_server_work.h"

namespace fargpu::client {

struct Context;

// What a held stream has of its own: one at a time for each.
class Lane {
 public:
  explicit Lane(Context& context);
  Context& context() const { return context_; }
  // Of the work of the lane's thread, one after the other.
  OwnStreams& work() { return work_; }
  // Of waits of the application's calls, which may be far ahead of that.
  OwnStreams& waits() { return waits_; }

 private:
  friend class HeldStreams;
  struct Task {
    std::unique_ptr<CrossServerWork> under_way;  // ends last
    std::function<CUresult()> work;
    uint32_t count = 0;  // what opens the gate
  };
  CUresult make_word();
  void open(uint32_t count);

  Context& context_;
  const uint32_t epoch_;
  std::mutex order_;  // held by a caller from its first frame to its gate
  CUdeviceptr word_ = 0;
  CUstream own_ = nullptr;  // made with the word, so that a gate can always be opened
  uint32_t count_ = 0;      // of gates; guarded by order_
  OwnStreams work_, waits_;
  std::mutex mutex_;  // the rest
  std::deque<Task> tasks_;
  bool running_ = false;
  size_t users_ = 0;  // guarded by the table's mutex (held_streams.cc)
};

class HeldStreams {
 public:
  // Runs `before(lane)` at once, on this thread and before the gate; then the stream is held, until
  // work() has returned on a thread of this class. `context`: the stream's, which is current.
  // `touched`: what the work needs besides (cross_server_work.h).
  struct Touched {
    std::vector<const Context*> contexts;
    std::vector<CrossServerWork::Range> memory{};
  };
  static CUresult hold(Context& context, CUstream stream, Touched touched,
                       const std::function<CUresult(Lane&)>& before,
                       const std::function<CUresult(Lane&)>& work);
  // Runs work(lane) on this thread with a lane that nobody else has.
  static CUresult borrow(Context& context, const std::function<CUresult(Lane&)>& work);
};

// A point that a stream of any server has reached or not; made on one thread, awaited on another.
class ServerPoint {
 public:
  ServerPoint() = default;
  ~ServerPoint();
  ServerPoint(const ServerPoint&) = delete;
  ServerPoint& operator=(const ServerPoint&) = delete;
  // What is in the stream of `context` now.
  CUresult set(Context& context, CUstream stream);
  // Waits, and sees what was written to mapped memory before it.
  CUresult wait();

 private:
  Context* context_ = nullptr;
  uint64_t event_ = 0;
};

// Whether `event` is a live event of another server than the stream's.
bool is_event_of_another_server(CUstream stream, CUevent event);
// cuStreamWaitEvent for such an event, for what it holds now.
CUresult wait_for_other_server(CUstream stream, CUevent event);

}  // namespace fargpu::client
