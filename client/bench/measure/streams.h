// Streams of a case, besides the GPU's stream; they end with it. Throws Failed. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "client/bench/measure/driver.h"

namespace fargpu::bench {

class Streams {
 public:
  explicit Streams(unsigned count) : streams_(count) {
    for (CUstream& stream : streams_) NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() {
    for (CUstream stream : streams_) (void)driver.cuStreamDestroy(stream);
  }
  CUstream operator[](size_t index) const { return streams_[index % streams_.size()]; }
  void synchronize() const {
    for (CUstream stream : streams_) NEED(cuStreamSynchronize(stream));
  }

 private:
  std::vector<CUstream> streams_;
};

}  // namespace fargpu::bench
