// Host functions and stream callbacks: functions of the application that run here, in stream order,
// when the worker says so.
//
// add() before the call that puts the function into a stream; the worker's notice leads to due() on
// the receiving thread, which only queues; a thread of our own (started with the first function)
// runs the functions one after the other and tells the worker. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

namespace fargpu::client {

struct HostFunction {
  CUhostFn function = nullptr;          // cuLaunchHostFunc
  CUstreamCallback callback = nullptr;  // cuStreamAddCallback
  void* user_data = nullptr;
  CUstream stream = nullptr;  // as the application gave it
};

class HostCalls {
 public:
  // `done(id)`: tells the worker that the function has returned. Called on the thread of the
  // functions.
  explicit HostCalls(std::function<void(uint64_t)> done) : done_(std::move(done)) {}

  uint64_t add(const HostFunction& function);
  void cancel(uint64_t id);                // the call that should have carried it failed
  void due(uint64_t id, CUresult status);  // does not block
  // The session is gone: stream callbacks still run, with `status`; host functions do not.
  void lost(CUresult status);
  // Functions in streams, running, or returned without the worker having been told. While there are
  // any, memory that an async copy reads may still change in stream order.
  bool outstanding() const { return outstanding_.load(std::memory_order_acquire) != 0; }
  // From begin_load(), which waits until no function is outstanding, to end_load() none is added.
  // What is sent in between comes after what the worker was told of earlier ones.
  void begin_load();
  void end_load();
  // Counts the times that the first one became outstanding.
  uint64_t period() const { return period_.load(std::memory_order_acquire); }
  // True on the thread that runs the functions: CUDA calls are not permitted there.
  static bool on_this_thread();

 private:
  struct Due {
    HostFunction function;
    uint64_t id = 0;
    CUresult status = CUDA_SUCCESS;
    bool tell = true;
  };
  void run();
  void one_less();  // with mutex_ held

  const std::function<void(uint64_t)> done_;
  std::mutex mutex_;
  std::condition_variable ready_, none_, loaded_;
  unsigned loads_ = 0;
  std::map<uint64_t, HostFunction> waiting_;
  std::deque<Due> due_;
  uint64_t next_id_ = 1;
  bool started_ = false;
  std::atomic<size_t> outstanding_{0};
  std::atomic<uint64_t> period_{0};
};

}  // namespace fargpu::client
