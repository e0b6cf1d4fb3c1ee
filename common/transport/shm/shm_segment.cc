#include "common/transport/shm/shm_segment.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "common/base/descriptors.h"

namespace fargpu::transport {
namespace {

constexpr size_t kControlBytes = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
static_assert(2 * sizeof(RingControl) <= kControlBytes);

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

uint64_t total_bytes(const ShmSizes& sizes) {
  return kControlBytes + sizes.to_server + sizes.to_client;
}

Status check_sizes(const ShmSizes& sizes) {
  for (uint64_t bytes : {sizes.to_server, sizes.to_client}) {
    if (!std::has_single_bit(bytes) || bytes < kSmallestShmRing || bytes > kLargestShmRing) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("a ring of {} bytes; it must be a power of two from {} to {}",
                                bytes, kSmallestShmRing, kLargestShmRing));
    }
  }
  return Status();
}

Fd make_memory() {
  const descriptors::StandardTaken taken;
  Fd memory(::memfd_create("fargpu", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  // Kernels before 6.3 do not know the last flag.
  if (!memory.valid() && errno == EINVAL)
    memory.reset(::memfd_create("fargpu", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  return descriptors::place(std::move(memory));
}

}  // namespace

Result<ShmSegment> ShmSegment::map(Fd memory, const ShmSizes& sizes) {
  void* base =
      ::mmap(nullptr, total_bytes(sizes), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (base == MAP_FAILED) return system_error("cannot map shared memory", errno);
  return ShmSegment(std::move(memory), static_cast<std::byte*>(base), sizes);
}

Result<ShmSegment> ShmSegment::create(const ShmSizes& sizes) {
  FARGPU_RETURN_IF_ERROR(check_sizes(sizes));
  Fd memory = make_memory();
  if (!memory.valid()) return system_error("cannot create shared memory", errno);
  if (::ftruncate(memory.get(), static_cast<off_t>(total_bytes(sizes))) != 0) {
    return system_error(fmt::format("cannot size shared memory to {} bytes", total_bytes(sizes)),
                        errno);
  }
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0)
    return system_error("cannot seal shared memory", errno);
  return map(std::move(memory), sizes);
}

Result<ShmSegment> ShmSegment::adopt(Fd memory, const ShmSizes& sizes) {
  FARGPU_RETURN_IF_ERROR(check_sizes(sizes));
  // Anything may have come: a file on a network, a device, huge pages that are not there.
  struct statfs filesystem {};
  struct stat file {};
  if (::fstatfs(memory.get(), &filesystem) != 0 || ::fstat(memory.get(), &file) != 0) {
    return system_error("cannot look at the peer's shared memory", errno);
  }
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (filesystem.f_type != TMPFS_MAGIC || !S_ISREG(file.st_mode) || seals < 0) {
    return Status(StatusCode::kProtocol, "the peer's descriptor is not a memfd");
  }
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  constexpr int kUnwanted = ~(kNeeded | F_SEAL_SEAL | 0x20 /* F_SEAL_EXEC */);
  if ((seals & kNeeded) != kNeeded || (seals & kUnwanted) != 0) {
    return Status(StatusCode::kProtocol,
                  fmt::format("the peer's shared memory has seals {:#x}", seals));
  }
  if (static_cast<uint64_t>(file.st_size) != total_bytes(sizes)) {
    return Status(StatusCode::kProtocol,
                  fmt::format("the peer's shared memory has {} bytes instead of {}", file.st_size,
                              total_bytes(sizes)));
  }
  return map(std::move(memory), sizes);
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : memory_(std::move(other.memory_)),
      base_(std::exchange(other.base_, nullptr)),
      sizes_(other.sizes_) {}

ShmSegment::~ShmSegment() {
  if (base_ != nullptr) ::munmap(base_, total_bytes(sizes_));
}

bool ShmSegment::make_present(size_t offset, size_t bytes) const {
  const size_t all = total_bytes(sizes_);
  if (offset >= all) return false;
  const size_t here = std::min(bytes, all - offset);
  return ::madvise(base_ + offset, here, MADV_POPULATE_WRITE) == 0 && offset + here < all;
}

// Fresh pages are zero, which is what every control word begins with.
RingMemory ShmSegment::to_server() const {
  return {reinterpret_cast<RingControl*>(base_), base_ + kControlBytes, sizes_.to_server};
}

RingMemory ShmSegment::to_client() const {
  return {reinterpret_cast<RingControl*>(base_) + 1, base_ + kControlBytes + sizes_.to_server,
          sizes_.to_client};
}

}  // namespace fargpu::transport
