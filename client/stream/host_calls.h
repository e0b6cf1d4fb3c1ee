// Host functions and stream callbacks: functions of the application that run here, in stream order,
// when the worker says so.
//
// add() before the call that puts the function into a stream; the worker's notice leads to due() on
// the receiving thread, which only queues; a thread of our own (started with the first function)
// runs the functions one after the other and tells the worker. A function that will never run,
// because its context failed or is destroyed, is cancelled by the worker. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
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
  uint16_t device = 0;        // HostCalls::device_key of the stream's; 0: not known
};

class HostCalls {
 public:
  // Both are called on the thread of the functions. `done(id)`: tells the worker that the function
  // has returned; `before()`: one that the worker knows of is about to run.
  explicit HostCalls(std::function<void(uint64_t)> done, std::function<void()> before = {})
      : done_(std::move(done)), before_(std::move(before)) {}

  // How devices are named here; 0: none is known, or any.
  static uint16_t device_key(int ordinal) { return static_cast<uint16_t>(ordinal + 1); }
  // May wait for a load that has begun on the same device, kLongestGate at most.
  uint64_t add(const HostFunction& function);
  void cancel(uint64_t id);                // it will not run
  void due(uint64_t id, CUresult status);  // does not block
  // The session is gone: stream callbacks still run, with `status`; host functions do not. Nobody
  // waits any more, also not for a function that runs.
  void lost(CUresult status);
  // Functions in streams, running, or returned without the worker having been told. While there are
  // any, memory that an async copy reads may still change in stream order, and calls that make the
  // driver wait for streams must not be sent.
  bool outstanding() const { return outstanding_.load(std::memory_order_acquire) != 0; }
  // Functions only, without what hold() counts.
  bool functions() const { return functions_.load(std::memory_order_acquire) != 0; }
  // Something else of this process holds, or may hold, a stream of the device until release():
  // counts as a function that is outstanding. hold() may wait as add() does; release() does not
  // block.
  void hold(uint16_t device);
  void release(uint16_t device);
  // A load, or a call that frees something, waits in the driver for all streams of its device (0:
  // of any), and the worker with it. begin_load() waits until none of them is held by a
  // function; functions that come later wait until end_load(). So a load waits for earlier
  // functions only. What is sent in between comes after what the worker was told of them.
  void begin_load(uint16_t device);
  void end_load(uint16_t device);
  // A stream of one context waits for work of another one: from now on a load on any device waits
  // for the functions of all.
  void join_contexts() { joined_.store(true, std::memory_order_relaxed); }
  // A function that an earlier one waits for must not wait for the load that waits for that one.
  static constexpr std::chrono::seconds kLongestGate{2};
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
  // The rest with mutex_ held.
  void one_more(uint16_t device);
  void one_less(uint16_t device);
  void one_function_less(uint16_t device);
  bool concerns(uint16_t load, uint16_t function) const;
  bool held(uint16_t load) const;
  bool gated(uint16_t function) const;

  const std::function<void(uint64_t)> done_;
  const std::function<void()> before_;
  std::mutex mutex_;
  std::condition_variable ready_, fewer_, loaded_;
  std::map<uint16_t, size_t> loads_;  // under way, by device
  std::map<uint16_t, size_t> holds_;  // how many are outstanding, by device
  std::atomic<bool> joined_{false};
  std::map<uint64_t, HostFunction> waiting_;
  std::deque<Due> due_;
  uint64_t next_id_ = 1;
  bool started_ = false;
  bool lost_ = false;
  std::atomic<size_t> outstanding_{0}, functions_{0};
  std::atomic<uint64_t> period_{0};
};

}  // namespace fargpu::client
