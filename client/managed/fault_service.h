// FaultService: a thread that fetches managed memory for threads of the application whose access
// waits. These threads are in a signal handler, on a stack of unknown size, so they only send a
// request; or in the system, and the thread that hears of it (UserFaults) has to hear of others
// meanwhile.
//
// One per session; the thread is started with the first managed memory and lives as long as the
// process. Any thread may ask.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

namespace fargpu::client {

class ManagedMemory;

class FaultService {
 public:
  explicit FaultService(ManagedMemory& memory) : memory_(memory) {}
  // Once, before everything else.
  void start();
  // Returns when it has been done.
  CUresult ask(uint64_t address, bool is_write);
  // Returns at once. A request that has not begun is not repeated. Memory that cannot be fetched
  // fails, and the log has the reason.
  void post(uint64_t address, bool is_write, uint64_t heard);
  // Prefetches, while no access waits.
  void post_ahead(uint64_t address);

 private:
  struct Request {
    uint64_t address;
    bool is_write;
    std::optional<uint64_t> heard;              // posted
    std::optional<CUresult>* answer = nullptr;  // asked
  };
  void run();
  void fail(uint64_t address, CUresult why);

  ManagedMemory& memory_;
  std::mutex mutex_;
  std::condition_variable more_, done_;
  // Guarded by mutex_.
  std::deque<Request> requests_;
  std::deque<uint64_t> wanted_;
};

}  // namespace fargpu::client
