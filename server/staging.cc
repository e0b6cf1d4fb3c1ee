#include "server/staging.h"

#include <cuda.h>
#include <fmt/core.h>
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
  if (pool_ != nullptr) pool_->give_back(memory_, use_, class_, pinned_);
}

std::span<std::byte> StagingBlock::whole() const { return {memory_, class_bytes(class_)}; }

StagingPool::~StagingPool() {
  for (const auto& of_use : free_) {
    for (unsigned size_class = 0; size_class < std::size(of_use); ++size_class) {
      for (const Free& block : of_use[size_class])
        unmap(block.memory, class_bytes(size_class), block.pinned);
    }
  }
}

Result<StagingBlock> StagingPool::acquire(size_t bytes, StagingUse use) {
  const unsigned size_class = class_of(bytes);
  auto& of_use = free_[static_cast<unsigned>(use)];
  if (size_class >= std::size(of_use)) {
    return Status(StatusCode::kNoCapacity,
                  fmt::format("a staging block of {} bytes is too large", bytes));
  }
  StagingBlock block;
  std::vector<Free>& candidates = of_use[size_class];
  if (!candidates.empty()) {
    block.memory_ = candidates.back().memory;
    block.pinned_ = candidates.back().pinned;
    candidates.pop_back();
    kept_bytes_ -= class_bytes(size_class);
  } else {
    void* memory = mmap(nullptr, class_bytes(size_class), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return Status(StatusCode::kNoCapacity,
                    fmt::format("no memory for a staging block of {} bytes", bytes));
    }
    block.memory_ = static_cast<std::byte*>(memory);
  }
  block.pool_ = this;
  block.size_ = bytes;
  block.class_ = size_class;
  block.use_ = use;
  const bool worth_it = use == StagingUse::kFromDevice || class_bytes(size_class) >= kPinnedFrom;
  if (!block.pinned_ && may_pin_ && worth_it) {
    block.pinned_ = pin(block.memory_, class_bytes(size_class));
  }
  return block;
}

void StagingPool::context_available(bool available) {
  may_pin_ = available && driver_ != nullptr && driver_->cuMemHostRegister_v2 != nullptr;
  if (available || driver_ == nullptr) return;
  // A registration goes with the context it was made in, but nobody knows here which that was: all
  // of them go, so that no block is registered that does not say so. Blocks in use keep theirs,
  // real or not; both are handled as registered.
  for (auto& of_use : free_) {
    for (std::vector<Free>& blocks : of_use) {
      for (Free& block : blocks) {
        if (std::exchange(block.pinned, false)) driver_->cuMemHostUnregister(block.memory);
      }
    }
  }
}

bool StagingPool::pin(std::byte* memory, size_t bytes) {
  const CUresult result = driver_->cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

void StagingPool::give_back(std::byte* memory, StagingUse use, unsigned size_class, bool pinned) {
  const size_t bytes = class_bytes(size_class);
  if (kept_bytes_ + bytes > kKeepBytes) {
    unmap(memory, bytes, pinned);
    return;
  }
  free_[static_cast<unsigned>(use)][size_class].push_back({memory, pinned});
  kept_bytes_ += bytes;
}

void StagingPool::unmap(std::byte* memory, size_t bytes, bool pinned) {
  if (gone_) gone_(memory);
  if (pinned) driver_->cuMemHostUnregister(memory);
  munmap(memory, bytes);
}

}  // namespace fargpu::server
