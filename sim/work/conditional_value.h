// The object of a conditional handle: a word of device memory. The handle is its address, so that
// kernels can set it (cudaGraphSetConditional, sim/object/module.cc). It keeps its value between
// launches.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "sim/context/context.h"

namespace fargpu::sim {

class ConditionalValue {
 public:
  // nullptr: out of memory. Needs the mutex of all graphs, as do find() and `used`.
  static std::shared_ptr<ConditionalValue> make(std::shared_ptr<Context> context, unsigned first,
                                                bool assign);
  static std::shared_ptr<ConditionalValue> find(uint64_t handle);
  ConditionalValue(std::shared_ptr<Context> context, uint64_t handle, unsigned first, bool assign);
  ~ConditionalValue();
  ConditionalValue(const ConditionalValue&) = delete;
  ConditionalValue& operator=(const ConditionalValue&) = delete;

  // At the beginning of a launch.
  void begin() {
    if (assign_ && context->alive()) word().store(first_);
  }
  unsigned value() const { return word().load(); }

  const std::shared_ptr<Context> context;
  const uint64_t handle;
  bool used = false;  // by a node

 private:
  std::atomic_ref<uint32_t> word() const {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(handle));
  }

  const std::shared_ptr<ContextMemory> memory_;
  const unsigned first_;
  const bool assign_;
};

}  // namespace fargpu::sim
