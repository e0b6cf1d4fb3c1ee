#include "server/placement/job_memory.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace fargpu::server {

using Counter = std::atomic<uint64_t>;
static_assert(Counter::is_always_lock_free);

// Then come the slots, GPU by GPU. A new memfd is zero, which is how all of them begin.
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

}  // namespace

Result<JobMemory> JobMemory::map(Fd fd, const JobMemoryShape& shape, uint32_t slot) {
  static_assert(sizeof(Page) == sizeof(Counter));
  void* const memory =
      ::mmap(nullptr, bytes_of(shape), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return system_error("mmap of the job's memory page", errno);
  return JobMemory(std::move(fd), static_cast<Page*>(memory), shape, slot);
}

Result<JobMemory> JobMemory::create(const JobMemoryShape& shape) {
  Fd fd(::memfd_create("fargpu-job", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return system_error("memfd_create", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes_of(shape))) != 0)
    return system_error("ftruncate", errno);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return system_error("sealing of the job's memory page", errno);
  return map(std::move(fd), shape, 0);
}

Result<JobMemory> JobMemory::open(Fd descriptor, const JobMemoryShape& shape, uint32_t slot) {
  struct stat about {};
  if (::fstat(descriptor.get(), &about) != 0) return system_error("fstat", errno);
  if (slot >= shape.slots || static_cast<uint64_t>(about.st_size) < bytes_of(shape))
    return Status(StatusCode::kProtocol, "the job's memory page is too small");
  FARGPU_ASSIGN_OR_RETURN(JobMemory memory, map(std::move(descriptor), shape, slot));
  memory.fd_.reset();
  return memory;
}

JobMemory::JobMemory(JobMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      page_(std::exchange(other.page_, nullptr)),
      shape_(other.shape_),
      slot_(other.slot_) {}

JobMemory& JobMemory::operator=(JobMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(page_, other.page_);
  std::swap(shape_, other.shape_);
  std::swap(slot_, other.slot_);
  return *this;
}

JobMemory::~JobMemory() {
  if (page_ != nullptr) ::munmap(page_, bytes_of(shape_));
}

std::span<Counter> JobMemory::slots_of(size_t gpu) const {
  auto* const first = reinterpret_cast<Counter*>(page_ + 1);
  return {first + gpu * shape_.slots, shape_.slots};
}

uint64_t JobMemory::used(size_t gpu) const {
  if (gpu >= shape_.gpus) return 0;
  const auto slots = slots_of(gpu);
  const size_t begun =
      std::min<size_t>(page_->slots_begun.load(std::memory_order_acquire), slots.size());
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

void JobMemory::refund(size_t gpu, uint64_t bytes) {
  if (gpu >= shape_.gpus) return;
  Counter& own = slots_of(gpu)[slot_];
  own.fetch_sub(std::min(bytes, own.load(std::memory_order_relaxed)), std::memory_order_seq_cst);
}

void JobMemory::take(uint32_t slot) {
  clear(slot);
  if (slot >= page_->slots_begun.load(std::memory_order_relaxed))
    page_->slots_begun.store(slot + 1, std::memory_order_release);
}

void JobMemory::clear(uint32_t slot) {
  for (size_t gpu = 0; gpu < shape_.gpus && slot < shape_.slots; ++gpu)
    slots_of(gpu)[slot].store(0, std::memory_order_seq_cst);
}

}  // namespace fargpu::server
