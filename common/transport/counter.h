// Counter: a figure of a transport (frames, bytes, system calls).
#pragma once

#include <atomic>
#include <cstdint>

namespace fargpu::transport {

// Written by one thread at a time, read by any.
struct Counter {
  std::atomic<uint64_t> value{0};
  void add(uint64_t n) {
    value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t get() const { return value.load(std::memory_order_relaxed); }
};

}  // namespace fargpu::transport
