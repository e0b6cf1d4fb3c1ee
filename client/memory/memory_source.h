// Where memory comes from: a pool, or physical memory of cuMemCreate.
#pragma once

#include <cuda.h>

#include <atomic>

#include "client/object/object.h"

namespace fargpu::client {

struct MemorySource final : Object {
  // cuMemRetainAllocationHandle gives the handle once more, to be released once more.
  std::atomic<unsigned> references{1};
  std::atomic<int> device{0};  // visible ordinal of the device where the memory lies
  std::atomic<int> handle_types{CU_MEM_HANDLE_TYPE_NONE};  // by which it may be exported
  std::atomic<bool> is_import{false};                      // a pool of another process

  // False: the last reference is gone.
  bool retain() {
    unsigned now = references.load(std::memory_order_relaxed);
    while (now != 0 && !references.compare_exchange_weak(now, now + 1)) {
    }
    return now != 0;
  }
  void made_with(const CUmemAllocationProp& properties) {
    device.store(properties.location.id, std::memory_order_relaxed);
    handle_types.store(properties.requestedHandleTypes, std::memory_order_relaxed);
  }
};

}  // namespace fargpu::client
