// The memory of a program that runs. Any thread, after make(); what is written where at once is the
// program's business.
#pragma once

#include <cuda.h>

#include <map>
#include <string>
#include <vector>

#include "tests/hunt/meeting.h"
#include "tests/hunt/mistake.h"
#include "tests/hunt/program.h"

namespace fargpu::hunt {

class Buffers {
 public:
  Buffers(const Program& program, int process, Mistake mistake)
      : program_(program), process_(process), mistake_(mistake) {}

  // What is this process's. With a context; all words are zero once the context is idle.
  void make();
  void unmake();
  // What the other process shares.
  void share(SharedPage& page) const;
  void open_shared(const SharedPage& page);
  void close_shared();
  // Fills what this process shares and reads it back, when nobody else uses it any more; throws
  // Failure.
  void use_again() const;

  const Buffer& of(const Place& place) const {
    return program_.buffers[static_cast<size_t>(place.buffer)];
  }
  size_t segment_bytes(const Place& place) const { return of(place).words * 4; }
  uint32_t words(const Place& place) const {
    return static_cast<uint32_t>(place.count * of(place).words);
  }
  // Of the place's segment k. Host memory has one address for host and device.
  CUdeviceptr address(const Place& place, size_t k = 0) const {
    return addresses_[static_cast<size_t>(place.buffer)] +
           (place.segment + k * place.stride) * segment_bytes(place);
  }
  // By the calling thread, into host memory.
  void write(const Place& place, uint32_t value) const;
  // Empty: each word is one of those allowed for its segment.
  std::string check(const Place& place, const std::vector<std::vector<uint32_t>>& allowed) const;

 private:
  bool is_mine(size_t buffer) const { return program_.buffers[buffer].process == process_; }
  bool is_opened(size_t buffer) const {
    return !is_mine(buffer) && program_.buffers[buffer].shared;
  }

  const Program& program_;
  const int process_;
  const Mistake mistake_;
  std::vector<CUdeviceptr> addresses_;
  void* make_registered(size_t bytes, bool is_large);

  struct Registered {
    void* all;      // what was allocated for it
    void* begin;    // of the registration
    size_t mapped;  // 0: by the C library
  };
  std::map<void*, Registered> registered_;  // by the buffer
};

}  // namespace fargpu::hunt
