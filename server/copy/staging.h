// Staging memory of a worker: blocks through which bulk data passes between socket and GPU.
//
// Blocks have powers of two from 4 KiB on and are reused. Blocks of at least kPinnedFrom bytes, and
// all blocks that the GPU writes, are registered with the driver in the context that uses them, so
// that copies really are asynchronous. A registration ends with its own context and no other: a
// block is reused in the context in which it is registered. The memory is ours and outlives the
// context. One thread (the executor's). A block's destructor gives it back to the pool; the pool
// outlives its blocks and its registrations.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/copy/limits.h"
#include "server/object/host_budget.h"
#include "server/object/object_end.h"

namespace fargpu::server {

struct DriverTable;
class StagingPool;

// To the GPU: small blocks are not worth pinning, the driver takes their bytes before its call
// returns. From the GPU: into pageable memory the driver would wait for the stream inside its call,
// and the executor must not wait, so every block is pinned.
enum class StagingUse : unsigned { kToDevice, kFromDevice };

// One mapping of the pool.
struct StagingMemory {
  std::byte* base = nullptr;
  unsigned size_class = 0;
  StagingUse use = StagingUse::kToDevice;
  uint16_t registered_in = 0;  // the context's id; 0: not registered
  bool leaving = false;        // its registration was taken: not to be used again
  bool beyond = false;         // the budget; not counted, and not kept
  unsigned holders = 0;        // a block, a registration
};

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
  ~StagingBlock() {
    if (pool_ != nullptr) give_back();
  }
  // The bytes asked for; the block itself may be larger.
  std::span<std::byte> bytes() const {
    return {memory_ == nullptr ? nullptr : memory_->base, size_};
  }
  // All of the block.
  std::span<std::byte> whole() const;
  explicit operator bool() const { return memory_ != nullptr; }
  // Whether the driver uses the memory until the stream has passed; else only until its call
  // returns.
  bool pinned() const { return memory_ != nullptr && memory_->registered_in != 0; }
  bool beyond_budget() const { return memory_ != nullptr && memory_->beyond; }

 private:
  friend class StagingPool;
  void give_back();
  void swap(StagingBlock& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
  }
  StagingPool* pool_ = nullptr;
  StagingMemory* memory_ = nullptr;
  size_t size_ = 0;
};

// The registration of one piece of staging memory, taken out of the pool. Its holder calls undo()
// once, then destroys it.
class StagingRegistration {
 public:
  StagingRegistration(StagingPool& pool, StagingMemory& memory) : pool_(&pool), memory_(&memory) {}
  StagingRegistration(StagingRegistration&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), memory_(other.memory_) {}
  StagingRegistration& operator=(StagingRegistration&&) = delete;
  ~StagingRegistration();
  // Any thread, with the context current. May wait for running work.
  CUresult undo() const;
  uint16_t context() const { return memory_->registered_in; }

 private:
  StagingPool* pool_;
  StagingMemory* memory_;
};

class StagingPool {
 public:
  static constexpr size_t kSmallest = 4096;
  // From this size on every block is pinned: CUDA takes the bytes of pageable copies at once up to
  // 64 KiB only.
  static constexpr size_t kPinnedFrom = copy::kTakenInCall;
  // Free memory that is kept for reuse.
  static constexpr size_t kKeepBytes = 256u << 20;

  // `driver` may be null (no pinning); it outlives the pool.
  explicit StagingPool(const DriverTable* driver,
                       HostBudgetPointer budget = std::make_shared<HostBudget>())
      : driver_(driver), budget_(std::move(budget)) {}
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // kNoCapacity when the system has no memory, or the session's budget is used up. Zero bytes give
  // a valid block of length 0. `context`: the id of the context that is current and will use the
  // block; 0: none will, and the block need not be registered.
  Result<StagingBlock> acquire(size_t bytes, StagingUse use, uint16_t context) {
    return acquire(bytes, use, context, Budget::kHolds);
  }
  // The same for bytes that are to be read whatever becomes of them: the block may be beyond the
  // budget (beyond_budget()), and is then let go of at once.
  Result<StagingBlock> acquire_in_passing(size_t bytes, uint16_t context) {
    return acquire(bytes, StagingUse::kToDevice, context, Budget::kMayBePassed);
  }

  // The context is about to be destroyed, and nothing runs in it. Returns its registrations, which
  // must be undone before the context ends.
  std::vector<StagingRegistration> take_registrations(uint16_t context);
  void context_ended(ContextEnd& end);

  // `retire` undoes the registration of memory that is not kept, without holding up the caller.
  // Unset: it is undone at once.
  void on_retire(std::function<void(StagingRegistration)> retire) { retire_ = std::move(retire); }
  // `gone` is called before memory is unmapped.
  void before_unmap(std::function<void(std::byte*)> gone) { gone_ = std::move(gone); }

  size_t kept_bytes() const { return kept_bytes_; }

 private:
  friend class StagingBlock;
  friend class StagingRegistration;
  using Free = std::vector<StagingMemory*>;
  enum class Budget { kHolds, kMayBePassed };
  Result<StagingBlock> acquire(size_t bytes, StagingUse use, uint16_t context, Budget budget);
  static StagingMemory* take_fitting(Free& candidates, uint16_t context);
  Result<StagingMemory*> map(unsigned size_class, StagingUse use, Budget budget);
  // Takes from the budget; lets go of free memory where that helps.
  bool pay(size_t bytes);
  void let_go(StagingMemory& memory);
  bool pin(const StagingMemory& memory);
  void give_back(StagingMemory& memory);
  void release(StagingMemory& memory);
  void unmap(StagingMemory& memory);

  const DriverTable* driver_;
  const HostBudgetPointer budget_;
  std::function<void(std::byte*)> gone_;
  std::function<void(StagingRegistration)> retire_;
  size_t kept_bytes_ = 0;
  Free free_[2][40];  // by use and class: blocks of kSmallest << class bytes
  std::unordered_map<StagingMemory*, std::unique_ptr<StagingMemory>> all_;
};

}  // namespace fargpu::server
