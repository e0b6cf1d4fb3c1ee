// Where memory comes from: a pool, or physical memory of cuMemCreate.
#pragma once

#include <cuda.h>

#include <atomic>

#include "client/object/object.h"

namespace fargpu::client {

struct MemorySource final : Object {
  std::atomic<int> device{0};  // visible ordinal of the device where the memory lies
  std::atomic<int> handle_types{CU_MEM_HANDLE_TYPE_NONE};  // by which it may be exported

  void made_with(const CUmemAllocationProp& properties) {
    device.store(properties.location.id, std::memory_order_relaxed);
    handle_types.store(properties.requestedHandleTypes, std::memory_order_relaxed);
  }
};

}  // namespace fargpu::client
