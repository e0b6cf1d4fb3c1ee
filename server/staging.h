// Staging memory of a worker: blocks that bulk data passes through between socket and GPU.
//
// Blocks come in powers of two from 4 KiB and are reused. Blocks of kPinnedFrom bytes or more, and
// all that the GPU writes to, are registered with the driver as soon as a context exists, so that
// copies really are asynchronous; the memory itself is ours, and stays valid when a context (and
// with it the registration) goes away. One thread (the executor's). A block gives itself back when
// it is destroyed; the pool outlives its blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace fargpu::server {

struct DriverTable;
class StagingPool;

// To the GPU: small blocks are not worth pinning, the driver takes their bytes before its call
// returns. From the GPU: into pageable memory the driver would wait for the stream inside its call,
// and the executor must not wait, so every block is pinned.
enum class StagingUse : unsigned { kToDevice, kFromDevice };

// Move-only owner of one block; default-constructed: empty.
class StagingBlock {
 public:
  StagingBlock() = default;
  StagingBlock(StagingBlock&& other) noexcept { swap(other); }
  StagingBlock& operator=(StagingBlock&& other) noexcept {
    StagingBlock moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~StagingBlock();
  // The bytes asked for; the block itself may be larger.
  std::span<std::byte> bytes() const { return {memory_, size_}; }
  // All of the block.
  std::span<std::byte> whole() const;
  explicit operator bool() const { return memory_ != nullptr; }
  // The driver uses the memory until the stream gets there; else it is done with it when its call
  // returns.
  bool pinned() const { return pinned_; }

 private:
  friend class StagingPool;
  void swap(StagingBlock& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(class_, other.class_);
    std::swap(use_, other.use_);
    std::swap(pinned_, other.pinned_);
  }
  StagingPool* pool_ = nullptr;
  std::byte* memory_ = nullptr;
  size_t size_ = 0;
  unsigned class_ = 0;
  StagingUse use_ = StagingUse::kToDevice;
  bool pinned_ = false;
};

class StagingPool {
 public:
  static constexpr size_t kSmallest = 4096;
  // From here on a block is pinned whatever it is for: CUDA takes the bytes of pageable copies at
  // once up to 64 KiB only.
  static constexpr size_t kPinnedFrom = 64 << 10;
  // Free memory that is kept for reuse.
  static constexpr size_t kKeepBytes = 256u << 20;

  // `driver` may be null (no pinning); it outlives the pool.
  explicit StagingPool(const DriverTable* driver) : driver_(driver) {}
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // kNoCapacity when the system has no memory. Zero bytes give a valid block of length 0.
  Result<StagingBlock> acquire(size_t bytes, StagingUse use);

  // A context is current from now on (or not any more): blocks are pinned on their next use.
  void context_available(bool available);

  // `gone` is told of memory before it is unmapped.
  void before_unmap(std::function<void(std::byte*)> gone) { gone_ = std::move(gone); }

  size_t kept_bytes() const { return kept_bytes_; }

 private:
  friend class StagingBlock;
  struct Free {
    std::byte* memory;
    bool pinned;
  };
  void give_back(std::byte* memory, StagingUse use, unsigned size_class, bool pinned);
  bool pin(std::byte* memory, size_t bytes);
  void unmap(std::byte* memory, size_t bytes, bool pinned);

  const DriverTable* driver_;
  std::function<void(std::byte*)> gone_;
  bool may_pin_ = false;
  size_t kept_bytes_ = 0;
  std::vector<Free> free_[2][40];  // by use and class: blocks of kSmallest << class bytes
};

}  // namespace fargpu::server
