// Where memory comes from: a pool, or physical memory of cuMemCreate.
#pragma once

#include <atomic>

#include "client/object/object.h"

namespace fargpu::client {

struct MemorySource final : Object {
  std::atomic<int> device{0};  // visible ordinal of the device where the memory lies
};

}  // namespace fargpu::client
