// Checkpoint: this process as others see it with cuCheckpointProcess*: whether its calls may go on
// (locked), and whether its device memory is there (checkpointed). A thread of its own, which is
// the restore thread, answers them on an abstract unix socket that is named after the process; only
// processes of the same user, or of root, are listened to.
//
// Memory that is shared with other processes by IPC handles cannot be checkpointed, as natively.
// A process goes on with the GPUs that it had: moving it to others is refused.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "common/base/fd.h"
#include "sim/memory/file_contents.h"

namespace fargpu::sim {

class Checkpoint {
 public:
  enum class Order : uint32_t { kThread, kState, kLock, kCheckpoint, kRestore, kUnlock };
  struct Request {
    Order order;
    uint32_t timeout_ms;  // kLock; 0: none
  };
  struct Answer {
    int32_t result;
    int32_t value;  // kThread, kState
  };
  // Asks a process, which may be this one. CUDA_ERROR_INVALID_VALUE: it does not use CUDA, or is
  // of another user.
  static CUresult ask(int process, const Request& request, int32_t* value = nullptr);

  // After each successful cuInit; the first one counts. Without a socket there are no requests.
  static void start();

 private:
  Checkpoint();
  void run();
  void serve(const Fd& caller);
  Answer answer(const Request& request);
  CUresult lock(uint32_t timeout_ms);
  CUresult checkpoint();
  CUresult restore();
  CUresult unlock();

  Fd socket_;
  // Of the thread.
  CUprocessState state_ = CU_PROCESS_STATE_RUNNING;
  std::vector<FileContents> contents_;
};

}  // namespace fargpu::sim
