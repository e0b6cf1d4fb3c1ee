#include "client/hostmem/touched_host.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "client/link/input.h"
#include "client/memory/reserve.h"
#include "common/base/descriptors.h"
#include "common/base/fd.h"
#include "common/host/memory_page.h"

namespace fargpu::client {
namespace {

Fd memory_file(size_t bytes) {
  Fd file = descriptors::make([] { return ::memfd_create("fargpu-mapped", MFD_CLOEXEC); });
  // Where files may not be as large, the system sends SIGXFSZ.
  struct rlimit most = {};
  if (!file.valid() || ::getrlimit(RLIMIT_FSIZE, &most) != 0 || bytes > most.rlim_cur ||
      ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return Fd();
  return file;
}

}  // namespace

class TouchedHost::Memory final : public PageGate {
 public:
  Memory(const UserFaults& faults, uint64_t address, std::byte* local, size_t bytes)
      : faults_(faults), address_(address), local_(local), bytes_(bytes) {}
  ~Memory() override { ::munmap(local_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* local() const override { return local_; }
  bool watch() override {
    // A page without memory would be made on access, without a reported fault.
    return ::madvise(reinterpret_cast<void*>(address_), bytes_, MADV_POPULATE_WRITE) == 0 &&
           faults_.watch(address_, bytes_);
  }
  size_t close(size_t offset, size_t bytes) override {
    UserFaults::close(address_ + offset, bytes);
    return bytes;
  }
  void open(size_t offset, size_t bytes) override { faults_.open(address_ + offset, bytes); }
  void fail(size_t offset, size_t bytes) override {
    ::mprotect(reinterpret_cast<void*>(address_ + offset), page_from(bytes), PROT_NONE);
    faults_.retry(address_ + offset, bytes);
  }
  void unwatch() override { faults_.unwatch(address_, bytes_); }
  Kept kept = Kept::kNo;  // guarded by mutex_ of TouchedHost

 private:
  const UserFaults& faults_;
  const uint64_t address_;
  std::byte* const local_;
  const size_t bytes_;
};

void* TouchedHost::allocate(size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX - kPageBytes || count() >= kMostMemories) return nullptr;
  const size_t whole = page_from(bytes);
  if (!faults_.open()) return nullptr;
  const Fd file = memory_file(whole);
  if (!file.valid()) return nullptr;
  void* const local = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (local == MAP_FAILED) return nullptr;
  void* const memory = allocate_host(whole, file.get());
  if (memory == nullptr) {
    ::munmap(local, whole);
    return nullptr;
  }
  ::madvise(local, whole, MADV_DONTFORK);
  ::madvise(memory, whole, MADV_DONTFORK);
  ::madvise(memory, whole, MADV_NOHUGEPAGE);  // pages come one by one
  const auto address = reinterpret_cast<uint64_t>(memory);
  std::lock_guard lock(mutex_);
  memories_.insert_or_assign(
      address, std::make_shared<Memory>(faults_, address, static_cast<std::byte*>(local), whole));
  observers_.add(Observers::kTouchedMemory);
  faulting_allocations.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

size_t TouchedHost::count() const {
  std::lock_guard lock(mutex_);
  return memories_.size();
}

std::shared_ptr<PageGate> TouchedHost::gate(uint64_t address) const {
  std::lock_guard lock(mutex_);
  const auto found = memories_.find(address);
  if (found == memories_.end() || found->second->kept != Kept::kNo) return nullptr;
  return found->second;
}

bool TouchedHost::keep(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = memories_.find(address);
  if (found == memories_.end() || found->second->kept == Kept::kYes) return false;
  found->second->kept = Kept::kWanted;
  return true;
}

void TouchedHost::kept(uint64_t address) {
  std::lock_guard lock(mutex_);
  if (const auto found = memories_.find(address); found != memories_.end())
    found->second->kept = Kept::kYes;
}

void TouchedHost::free(uint64_t address) {
  std::lock_guard lock(mutex_);
  if (memories_.erase(address) == 0) return;
  observers_.set(Observers::kTouchedMemory, !memories_.empty());
  faulting_allocations.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace fargpu::client
