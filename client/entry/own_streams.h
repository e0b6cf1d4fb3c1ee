// OwnStreams: streams of ours in contexts of the application, for work that is no call of its own.
// They wait for no default stream. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace fargpu::client {

struct Context;

class OwnStreams {
 public:
  // The one in a context of any server; made at first use. CUDA_ERROR_INVALID_CONTEXT: the context
  // has ended or was reset.
  CUresult in(Context& context, CUstream* stream);

 private:
  struct Own {
    Context* context;
    uint32_t epoch;  // of the context when it was made
    CUstream stream;
  };
  std::mutex mutex_;
  std::vector<Own> made_;  // guarded by mutex_
};

}  // namespace fargpu::client
