#include "server/placement/job_memory.h"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace fargpu::server {

using Counter = std::atomic<uint64_t>;
static_assert(Counter::is_always_lock_free);

// Then come the slots, GPU by GPU, then their owners. A new memfd is zero, which is how all of them
// begin.
struct JobMemory::Page {
  // Slots from here on were never used. Written by the daemon before the worker starts that has the
  // slot.
  std::atomic<uint32_t> slots_begun;
  uint32_t unused;
};

namespace {

size_t bytes_of(const JobMemoryShape& shape) {
  return sizeof(Counter) * (1 + size_t{shape.gpus} * shape.slots);
}

constexpr size_t kOwnerWords = 2;

size_t bytes_with_owners(const JobMemoryShape& shape) {
  return bytes_of(shape) + sizeof(Counter) * kOwnerWords * shape.slots;
}

}  // namespace

Result<JobMemory> JobMemory::create(const JobMemoryShape& shape) {
  FARGPU_ASSIGN_OR_RETURN(SharedPage memory,
                          SharedPage::create("fargpu-job", bytes_with_owners(shape)));
  return JobMemory(std::move(memory), shape, 0);
}

Result<JobMemory> JobMemory::open(Fd descriptor, const JobMemoryShape& shape, uint32_t slot) {
  if (slot >= shape.slots)
    return Status(StatusCode::kProtocol, "the job's memory page has no such slot");
  // An older daemon's page may end before the owners.
  struct stat about {};
  const bool owned = ::fstat(descriptor.get(), &about) == 0 &&
                     static_cast<uint64_t>(about.st_size) >= bytes_with_owners(shape);
  FARGPU_ASSIGN_OR_RETURN(
      SharedPage memory,
      SharedPage::open(std::move(descriptor), owned ? bytes_with_owners(shape) : bytes_of(shape)));
  return JobMemory(std::move(memory), shape, slot);
}

JobMemory::Page* JobMemory::page() const {
  static_assert(sizeof(Page) == sizeof(Counter));
  return reinterpret_cast<Page*>(memory_.data());
}

std::span<Counter> JobMemory::slots_of(size_t gpu) const {
  auto* const first = reinterpret_cast<Counter*>(page() + 1);
  return {first + gpu * shape_.slots, shape_.slots};
}

std::span<Counter> JobMemory::owners() const {
  if (memory_.bytes() < bytes_with_owners(shape_)) return {};
  return {slots_of(shape_.gpus).data(), size_t{kOwnerWords} * shape_.slots};
}

uint64_t JobMemory::used_by(size_t gpu, uint32_t slot) const {
  if (gpu >= shape_.gpus || slot >= shape_.slots) return 0;
  return slots_of(gpu)[slot].load(std::memory_order_relaxed);
}

SlotOwner JobMemory::owner(uint32_t slot) const {
  const auto words = owners();
  if (words.empty() || slot >= shape_.slots) return {};
  const auto at = size_t{slot} * kOwnerWords;
  return {words[at].load(std::memory_order_relaxed),
          static_cast<int32_t>(words[at + 1].load(std::memory_order_relaxed))};
}

uint64_t JobMemory::used(size_t gpu) const {
  if (gpu >= shape_.gpus) return 0;
  const auto slots = slots_of(gpu);
  const size_t begun =
      std::min<size_t>(page()->slots_begun.load(std::memory_order_acquire), slots.size());
  uint64_t sum = 0;
  for (const Counter& slot : slots.first(begun)) {
    // Sequentially consistent with charge()'s additions: of two that charge at once, one sees the
    // other.
    const uint64_t held = slot.load(std::memory_order_seq_cst);
    if (__builtin_add_overflow(sum, held, &sum)) return UINT64_MAX;
  }
  return sum;
}

bool JobMemory::charge(size_t gpu, uint64_t bytes) {
  if (gpu >= shape_.gpus) return false;
  const uint64_t limit = shape_.limit_bytes != 0 ? shape_.limit_bytes : UINT64_MAX - 1;
  if (bytes > limit) return false;
  Counter& own = slots_of(gpu)[slot_];
  constexpr int kTries = 16, kLooks = 3;
  for (int tries = 0, looks = 0; tries < kTries && looks < kLooks;) {
    // Never added when it cannot fit: others would see it, and the slot could overflow.
    const uint64_t before = used(gpu);
    if (before > limit || bytes > limit - before) {
      if (before == own.load(std::memory_order_relaxed)) return false;  // nobody else's try
      ++looks;
      ::sched_yield();
      continue;
    }
    own.fetch_add(bytes, std::memory_order_seq_cst);
    if (used(gpu) <= limit) return true;
    own.fetch_sub(bytes, std::memory_order_seq_cst);
    ++tries;
    ::sched_yield();
  }
  return false;
}

void JobMemory::take_over(size_t gpu, uint64_t bytes) {
  if (gpu < shape_.gpus) slots_of(gpu)[slot_].fetch_add(bytes, std::memory_order_seq_cst);
}

void JobMemory::refund(size_t gpu, uint64_t bytes) {
  if (gpu >= shape_.gpus) return;
  Counter& own = slots_of(gpu)[slot_];
  own.fetch_sub(std::min(bytes, own.load(std::memory_order_relaxed)), std::memory_order_seq_cst);
}

void JobMemory::take(uint32_t slot, const SlotOwner& owner) {
  clear(slot);
  if (const auto words = owners(); !words.empty() && slot < shape_.slots) {
    words[size_t{slot} * kOwnerWords].store(owner.host, std::memory_order_relaxed);
    words[size_t{slot} * kOwnerWords + 1].store(static_cast<uint32_t>(owner.pid),
                                                std::memory_order_relaxed);
  }
  if (slot >= page()->slots_begun.load(std::memory_order_relaxed))
    page()->slots_begun.store(slot + 1, std::memory_order_release);
}

void JobMemory::clear(uint32_t slot) {
  for (size_t gpu = 0; gpu < shape_.gpus && slot < shape_.slots; ++gpu)
    slots_of(gpu)[slot].store(0, std::memory_order_seq_cst);
  if (const auto words = owners(); !words.empty() && slot < shape_.slots)
    words[size_t{slot} * kOwnerWords + 1].store(0, std::memory_order_relaxed);
}

}  // namespace fargpu::server
