// Completion: tells when the GPU has got somewhere, without ever blocking the executor.
//
// when_reached() records an event and polls it from the worker's list of deferred work. when_idle() hands the one wait that the driver cannot
// poll (a whole context) to a helper thread. Callbacks run on the executor's thread, exactly once, also when the context is destroyed
// meanwhile (they then get its error). Not after the session has ended.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace fargpu::server {

class Worker;

class Completion {
 public:
  using Done = std::function<void(CUresult)>;

  explicit Completion(Worker& worker) : worker_(worker) {}
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // `done` runs when everything submitted to `stream` so far is finished. `context` must be current.
  void when_reached(uint16_t context, CUstream stream, Done done);
  // `done` runs when everything submitted to the context so far is finished.
  void when_idle(uint16_t context, Done done);
  // The context is about to go: its cached events are destroyed. Its driver context must be current.
  void forget(uint16_t context);

 private:
  struct Job {
    CUcontext context;
    Done done;
  };
  CUevent take_event(uint16_t context);
  void run();

  Worker& worker_;
  std::unordered_map<uint16_t, std::vector<CUevent>> events_;  // unused ones, by context
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;   // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // started by the first when_idle()
};

}  // namespace fargpu::server
