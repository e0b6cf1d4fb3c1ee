// FaultService: a thread that fetches managed memory for threads of the application whose access
// has faulted. Those are in a signal handler, on whatever stack they have, so they only ask.
//
// One per session; the thread is started with the first managed memory and lives as long as the
// process. Any thread may ask.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace fargpu::client {

class FaultService {
 public:
  using Bring = std::function<CUresult(uint64_t address, bool is_write)>;
  // The first call counts.
  void start(Bring bring);
  // Returns when it has been done.
  CUresult ask(uint64_t address, bool is_write);

 private:
  struct Request {
    uint64_t address;
    bool is_write;
    bool done = false;
    CUresult result = CUDA_SUCCESS;
  };
  void run();

  Bring bring_;
  std::mutex mutex_;
  std::condition_variable more_, done_;
  std::deque<Request*> requests_;  // guarded by mutex_
  bool started_ = false;           // guarded by mutex_
};

}  // namespace fargpu::client
