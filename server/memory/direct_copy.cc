#include "server/memory/direct_copy.h"

#include <chrono>
#include <memory>
#include <utility>

#include "common/base/log.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

// The transport notices a silent peer long before; this only keeps a defect from holding the stream
// for ever.
constexpr auto kLimit = std::chrono::minutes(2);

Status move(const DirectCopy& copy) {
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  uint64_t offset = copy.offset;
  for (const auto& [registration, bytes] : copy.device) {
    FARGPU_RETURN_IF_ERROR(
        copy.to_device
            ? copy.remote->read_now(copy.client, offset, *registration, bytes, deadline)
            : copy.remote->write_now(*registration, bytes, copy.client, offset, deadline));
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

CUresult enqueue_direct(const DriverTable& driver, CUstream stream, DirectCopy copy) {
  auto for_driver = std::make_unique<DirectCopy>(std::move(copy));
  const CUresult result = driver.cuLaunchHostFunc(stream, &reached, for_driver.get());
  // The driver owns it from here on. If the context fails meanwhile, the driver never calls it;
  // such a session ends soon, and the memory with it.
  if (result == CUDA_SUCCESS) (void)for_driver.release();
  return result;
}

}  // namespace fargpu::server
