#include "server/staging.h"

#include <cuda.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <bit>

#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

unsigned class_of(size_t bytes) {
  const size_t pages = (bytes + StagingPool::kSmallest - 1) / StagingPool::kSmallest;
  return pages <= 1 ? 0 : static_cast<unsigned>(std::bit_width(pages - 1));
}
size_t class_bytes(unsigned size_class) { return StagingPool::kSmallest << size_class; }

}  // namespace

StagingBlock::~StagingBlock() {
  if (pool_ != nullptr) pool_->give_back(memory_, class_, pinned_);
}

StagingPool::~StagingPool() {
  for (unsigned size_class = 0; size_class < std::size(free_); ++size_class) {
    for (const Free& block : free_[size_class]) unmap(block.memory, class_bytes(size_class), block.pinned);
  }
}

Result<StagingBlock> StagingPool::acquire(size_t bytes) {
  const unsigned size_class = class_of(bytes);
  if (size_class >= std::size(free_)) {
    return Status(StatusCode::kNoCapacity, fmt::format("a staging block of {} bytes is too large", bytes));
  }
  StagingBlock block;
  std::vector<Free>& candidates = free_[size_class];
  if (!candidates.empty()) {
    block.memory_ = candidates.back().memory;
    block.pinned_ = candidates.back().pinned;
    candidates.pop_back();
    kept_bytes_ -= class_bytes(size_class);
  } else {
    void* memory = mmap(nullptr, class_bytes(size_class), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return Status(StatusCode::kNoCapacity, fmt::format("no memory for a staging block of {} bytes", bytes));
    }
    block.memory_ = static_cast<std::byte*>(memory);
  }
  block.pool_ = this;
  block.size_ = bytes;
  block.class_ = size_class;
  if (!block.pinned_ && may_pin_ && class_bytes(size_class) >= kPinnedFrom) {
    block.pinned_ = pin(block.memory_, class_bytes(size_class));
  }
  return block;
}

void StagingPool::context_available(bool available) {
  may_pin_ = available && driver_ != nullptr && driver_->cuMemHostRegister_v2 != nullptr;
  // A registration belongs to the context it was made in, and that one may be gone: ask again on the next use.
  for (std::vector<Free>& blocks : free_) {
    for (Free& block : blocks) block.pinned = false;
  }
}

bool StagingPool::pin(std::byte* memory, size_t bytes) {
  const CUresult result = driver_->cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

void StagingPool::give_back(std::byte* memory, unsigned size_class, bool pinned) {
  const size_t bytes = class_bytes(size_class);
  if (kept_bytes_ + bytes > kKeepBytes) {
    unmap(memory, bytes, pinned);
    return;
  }
  free_[size_class].push_back({memory, pinned});
  kept_bytes_ += bytes;
}

void StagingPool::unmap(std::byte* memory, size_t bytes, bool pinned) {
  if (pinned) driver_->cuMemHostUnregister(memory);
  munmap(memory, bytes);
}

}  // namespace fargpu::server
