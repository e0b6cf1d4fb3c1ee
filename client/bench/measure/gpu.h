// The GPU as the cases use it: a context, a stream, an empty kernel, and memory to copy. Made once
// per process; every error throws Failed. One thread, except where a case says otherwise.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "client/bench/measure/driver.h"

namespace fargpu::bench {

// PTX with `kernels` empty kernels, kernel_0 and so on. Texts with different `mark` are different
// images for all caches.
std::string image_text(unsigned kernels, const std::string& mark);

// Makes the primary context of device 0 current.
void enter_context();

class Gpu {
 public:
  // `largest`: bytes of the largest copy. Memory is allocated when it is first used, and kept.
  explicit Gpu(size_t largest);

  CUstream stream() const { return stream_; }
  void launch(CUstream stream) const;
  void launch() const { launch(stream_); }
  void synchronize() const { NEED(cuStreamSynchronize(stream_)); }
  CUfunction kernel() const { return kernel_; }

  size_t largest() const { return largest_; }
  // `largest` bytes of host memory: "pinned", "registered" or "pageable". `which`: 0 or 1, two
  // different ones; of pinned memory only.
  char* host(const std::string& memory, unsigned which = 0);
  // `which`: 0 or 1, two different ones.
  CUdeviceptr device(unsigned which = 0);

 private:
  char* new_host(const std::string& memory) const;

  size_t largest_;
  CUstream stream_ = nullptr;
  CUfunction kernel_ = nullptr;
  char* pinned_[2] = {};
  char* registered_ = nullptr;
  char* pageable_ = nullptr;
  CUdeviceptr device_[2] = {};
};

}  // namespace fargpu::bench
