#include "server/memory/remote_copy.h"

#include <utility>
#include <vector>

#include "generated/server/driver_table.h"
#include "server/memory/direct_copy.h"
#include "server/memory/direct_memory.h"
#include "server/memory/memory_account.h"

namespace fargpu::server {

bool is_dense(const Shape& shape) {
  return (shape.height == 1 || shape.pitch == shape.width) &&
         (shape.depth == 1 || shape.slice_pitch == shape.width * shape.height);
}

bool start_direct(const DriverTable& driver, MemoryAccount& memory, const RemoteCopy& copy,
                  bool to_device, CUresult* result) {
  DirectMemory& direct = memory.direct();
  if (!direct.wanted(copy.bytes) || !is_dense(copy.shape) || driver.cuLaunchHostFunc == nullptr)
    return false;
  const auto allocation = memory.find(copy.device, copy.bytes);
  if (!allocation) return false;
  std::vector<DirectMemory::Part> parts =
      direct.find(*allocation, copy.device, copy.bytes, to_device);
  if (parts.empty()) return false;
  *result =
      enqueue_direct(driver, copy.stream,
                     {direct.remote(), to_device, copy.client, copy.offset, std::move(parts)});
  return true;
}

}  // namespace fargpu::server
