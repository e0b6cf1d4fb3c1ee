#include "server/copy/direct_copy.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "generated/server/driver_table.h"
#include "server/copy/copy_rows.h"
#include "server/memory/direct_memory.h"
#include "server/memory/memory_account.h"

namespace fargpu::server {
namespace {

struct DirectCopy {
  transport::RemoteMemory* remote;  // outlives the driver's threads
  bool to_device;
  copy::Location client;
  std::vector<DirectMemory::Part> device;
};

// The transport notices a silent peer long before; this only keeps a defect from holding the stream
// for ever.
constexpr auto kLimit = std::chrono::minutes(2);

Status move(const DirectCopy& copy) {
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  uint64_t offset = copy.client.offset;
  for (const auto& [registration, bytes] : copy.device) {
    FARGPU_RETURN_IF_ERROR(
        copy.to_device
            ? copy.remote->read_now(copy.client.remote, offset, *registration, bytes, deadline)
            : copy.remote->write_now(*registration, bytes, copy.client.remote, offset, deadline));
    offset += bytes.size();
  }
  return Status();
}

// Runs on a thread of the driver, which must not call the driver.
void CUDA_CB reached(void* pointer) {
  const std::unique_ptr<DirectCopy> copy(static_cast<DirectCopy*>(pointer));
  if (const Status status = move(*copy); !status.ok())
    log::error("event=direct-copy-failed why=\"{}\"", status.message());
}

}  // namespace

bool start_direct(const DriverTable& driver, MemoryAccount& memory, const copy::Copy& copy,
                  CUstream stream, CUresult* result) {
  DirectMemory& direct = memory.direct();
  const uint64_t bytes = copy.shape.bytes(), address = copy.device().rows.address;
  if (!direct.wanted(bytes) || !is_dense_memory(copy.shape, copy.device()) ||
      driver.cuLaunchHostFunc == nullptr)
    return false;
  const auto allocation = memory.find(address, bytes);
  if (!allocation) return false;
  std::vector<DirectMemory::Part> parts =
      direct.find(*allocation, address, bytes, copy.to_device());
  if (parts.empty()) return false;
  auto for_driver = std::make_unique<DirectCopy>(
      DirectCopy{direct.remote(), copy.to_device(), copy.host(), std::move(parts)});
  *result = driver.cuLaunchHostFunc(stream, &reached, for_driver.get());
  // The driver owns it from here on. If the context fails meanwhile, the driver never calls it;
  // such a session ends soon, and the memory with it.
  if (*result == CUDA_SUCCESS) (void)for_driver.release();
  return true;
}

}  // namespace fargpu::server
