// Host functions and stream callbacks: functions of the application that run in the client, in
// stream order, when the worker reports that their turn has come.
//
// add() must be called before the call that puts the function into a stream. The worker's notice
// leads to due() on the receiving thread, which only queues the function. One thread
// (client/transfer/host_functions.h) gets the functions one after the other by next(), runs each
// and reports it to the worker. A function that will never run, because its context failed or was
// destroyed, is cancelled by the worker. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "client/stream/functions_ahead.h"
#include "client/stream/observers.h"

namespace fargpu::client {

struct HostFunction {
  CUhostFn function = nullptr;          // cuLaunchHostFunc
  CUstreamCallback callback = nullptr;  // cuStreamAddCallback
  void* user_data = nullptr;
  CUstream stream = nullptr;  // as the application gave it
  uint16_t device = 0;        // HostCalls::device_key of the stream's; 0: not known
  // Data that the function uses: released on its thread when it has run and the worker knows, or by
  // the thread that finds that it will not run.
  std::shared_ptr<void> keeps{};
  std::shared_ptr<void> turns{};  // its turns (HostTurns); released likewise
};

class HostCalls {
 public:
  // `observers`: HostCalls owns kHostFunctions and kHeldStreams of it.
  explicit HostCalls(Observers& observers) : observers_(observers) {}
  // The key of a device here; 0: unknown, or any device.
  static uint16_t device_key(int ordinal) { return static_cast<uint16_t>(ordinal + 1); }
  // May wait for a load that has begun on the same device, kLongestGate at most.
  uint64_t add(const HostFunction& function);
  // Several of one device, one at least, with one such wait. Their ids in their order.
  std::vector<unsigned long long> add_all(std::vector<HostFunction> functions);
  void cancel(uint64_t id);                // it will not run
  void due(uint64_t id, CUresult status);  // does not block
  // A function whose turn has come.
  struct Due {
    HostFunction function;
    uint64_t id = 0;
    CUresult status = CUDA_SUCCESS;
    bool tell = true;  // the worker, when it has returned
  };
  // For the thread that runs the functions. next() waits for one; ended(): the worker knows that
  // the function has returned.
  Due next();
  static void run(const Due& due);
  void ended(const Due& due);
  // The session is lost. Stream callbacks still run, with `status`; host functions do not. All
  // waits end, also waits for a running function.
  void lost(CUresult status);
  // Whether functions, or what hold() counts, may hold streams. While they do, calls that make the
  // driver wait for streams must not be sent.
  bool outstanding() const { return observers_.any(Observers::kHeldStreams); }
  // Something else of this process holds, or may hold, a stream of the device until release():
  // counts as a function that is outstanding. hold() may wait as add() does; release() does not
  // block.
  void hold(uint16_t device);
  void release(uint16_t device);
  // A load, or a call that frees something, waits in the driver for all streams of its device (0:
  // of every device), and the worker waits with it. begin_load() waits until no function holds any
  // of them. Functions that are added later wait until end_load(), so a load waits only for earlier
  // functions. A frame sent in between arrives after the reports that those functions returned.
  void begin_load(uint16_t device);
  void end_load(uint16_t device);
  class Load {
   public:
    Load(HostCalls& calls, uint16_t device) : calls_(calls), device_(device) {
      calls.begin_load(device);
    }
    ~Load() { calls_.end_load(device_); }
    Load(const Load&) = delete;
    Load& operator=(const Load&) = delete;

   private:
    HostCalls& calls_;
    const uint16_t device_;
  };
  // A stream of one context waits for work of another one: from now on a load on any device waits
  // for the functions of all.
  void join_contexts() { joined_.store(true, std::memory_order_relaxed); }
  // The same for a call in which a driver waits at times only: waits until no function is left, but
  // kPatience at most, since functions may wait for a later call of the program. In vain it waits
  // once a period(). False: functions are left; nothing has begun; the executor must not make the
  // call.
  bool begin_short_load(uint16_t device);
  // The same, until no stream of the device is held. The call is made in any case.
  bool begin_short_drain(uint16_t device);
  static constexpr std::chrono::milliseconds kPatience{500};
  // Bounds the wait of add(): an earlier function may wait for the new one, and the load waits for
  // the earlier function.
  static constexpr std::chrono::seconds kLongestGate{2};
  // The id of the last function that was added; 0: none yet.
  uint64_t last() const { return last_id_.load(std::memory_order_acquire); }
  // The last function up to this id, or up to the last one before everything_follows(). 0: those up
  // to it have been reported as returned.
  uint64_t last_up_to(uint64_t id);
  // Work of any stream may come behind the functions there are: which does is not known.
  void everything_follows() { followed_by_all_.follow(last()); }
  // How often outstanding() has become true.
  uint64_t period() const { return period_.load(std::memory_order_acquire); }
  // True on the thread that runs the functions: CUDA calls are not permitted there.
  static bool on_this_thread() { return runs_host_functions; }

 private:
  bool begin_briefly(uint16_t device, const std::function<bool()>& none_left);
  static inline constinit thread_local bool runs_host_functions = false;
  // The rest with mutex_ held.
  uint64_t oldest() const;
  uint64_t enter(const HostFunction& function);
  void one_more(uint16_t device);
  void one_less(uint16_t device);
  void one_function_less(uint16_t device);
  void one_load_less(uint16_t device);
  bool concerns(uint16_t load, uint16_t function) const;
  bool held(uint16_t load) const;
  bool gated(uint16_t function) const;

  Observers& observers_;
  std::mutex mutex_;  // guards the rest, but what is atomic
  std::condition_variable ready_, fewer_, loaded_;
  std::map<uint16_t, size_t> loads_;  // under way, by device
  std::map<uint16_t, size_t> holds_;  // how many are outstanding, by device
  std::atomic<bool> joined_{false};
  std::map<uint64_t, HostFunction> waiting_;
  std::deque<Due> due_;
  std::atomic<uint64_t> last_id_{0};
  FunctionsAhead followed_by_all_;
  uint64_t running_ = 0;  // the id of what next() has given, until ended()
  bool lost_ = false;
  uint64_t waited_in_vain_ = 0;  // the period
  size_t outstanding_ = 0, functions_ = 0;
  std::atomic<uint64_t> period_{0};
};

}  // namespace fargpu::client
