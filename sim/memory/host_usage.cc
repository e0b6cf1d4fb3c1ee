#include "sim/memory/host_usage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <utility>

namespace fargpu::sim {

struct HostUsage::Opened {
  std::atomic<uint64_t> exporter, id, bytes;  // no bytes: unused
  std::atomic<int32_t> unit;
  std::atomic<uint32_t> freed;  // by its exporter, which writes this alone
};

struct HostUsage::Slot {
  std::atomic<uint64_t> exporter;  // 0: it exports nothing
  std::atomic<uint64_t> bytes[kUnits];
  std::atomic<uint32_t> initializes;
  Opened opened[kOpened];
};

// A new file is zero, which is how all slots begin.
struct HostUsage::Page {
  Slot slots[kSlots];
};

namespace {

// Locks of an open file, which the threads of a process share: they are kept apart by this.
std::mutex among_threads;

struct flock range(short type, int at) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Result<std::shared_ptr<HostUsage>> HostUsage::map(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return system_error(path, errno);
  // Never shorter: others have mapped it.
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  if (size < static_cast<off_t>(sizeof(Page)) &&
      ::ftruncate(file.get(), static_cast<off_t>(sizeof(Page))) != 0)
    return system_error(path, errno);
  void* const memory =
      ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return system_error(path, errno);
  return std::shared_ptr<HostUsage>(new HostUsage(std::move(file), static_cast<Page*>(memory)));
}

Result<std::shared_ptr<HostUsage>> HostUsage::look(const std::string& path) { return map(path); }

Result<std::shared_ptr<HostUsage>> HostUsage::open(const std::string& path) {
  FARGPU_ASSIGN_OR_RETURN(auto usage, map(path));
  for (int slot = 0; slot < kSlots; ++slot) {
    if (!usage->lock(slot, /*wait=*/false)) continue;
    Slot& own = usage->page_->slots[slot];
    own.exporter.store(0);
    for (auto& bytes : own.bytes) bytes.store(0);
    own.initializes.store(0);
    for (auto& opened : own.opened) opened.bytes.store(0);
    usage->slot_ = slot;
    return usage;
  }
  return Status(StatusCode::kSystem, path + " has no room for another process");
}

HostUsage::~HostUsage() { ::munmap(page_, sizeof(Page)); }

bool HostUsage::lock(int at, bool wait) const {
  auto lock = range(F_WRLCK, at);
  int result = 0;
  do {
    result = ::fcntl(file_.get(), wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

void HostUsage::unlock(int at) const {
  auto lock = range(F_UNLCK, at);
  (void)::fcntl(file_.get(), F_OFD_SETLK, &lock);
}

bool HostUsage::has_owner(int slot) const {
  if (slot == slot_) return true;
  auto lock = range(F_WRLCK, slot);
  return ::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

uint64_t HostUsage::used(int unit) const {
  uint64_t sum = 0;
  const bool ended_count = any_initializes();
  for (int slot = 0; slot < kSlots; ++slot) {
    const uint64_t bytes = page_->slots[slot].bytes[unit].load();
    if (bytes != 0 && (ended_count || has_owner(slot))) sum += bytes;
  }
  return sum + left_open(unit);
}

// Those that have ended before are not to count.
void HostUsage::begin_initialization() {
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slot == slot_ || !lock(slot, /*wait=*/false)) continue;
    for (auto& bytes : page_->slots[slot].bytes) bytes.store(0);
    unlock(slot);
  }
  page_->slots[slot_].initializes.store(1);
}

void HostUsage::end_initialization() { page_->slots[slot_].initializes.store(0); }

bool HostUsage::any_initializes() const {
  for (int slot = 0; slot < kSlots; ++slot)
    if (page_->slots[slot].initializes.load() != 0 && has_owner(slot)) return true;
  return false;
}

bool HostUsage::lives(uint64_t exporter) const {
  for (int slot = 0; slot < kSlots; ++slot)
    if (page_->slots[slot].exporter.load() == exporter && has_owner(slot)) return true;
  return false;
}

uint64_t HostUsage::left_open(int unit) const {
  std::set<std::pair<uint64_t, uint64_t>> counted;  // once, however many have it open
  uint64_t sum = 0;
  for (int slot = 0; slot < kSlots; ++slot) {
    for (const Opened& each : page_->slots[slot].opened) {
      const uint64_t bytes = each.bytes.load();
      if (bytes == 0 || each.unit.load() != unit || !has_owner(slot)) continue;
      const uint64_t exporter = each.exporter.load();
      if (each.freed.load() == 0 && lives(exporter)) continue;
      if (counted.emplace(exporter, each.id.load()).second) sum += bytes;
    }
  }
  return sum;
}

void HostUsage::export_as(uint64_t exporter) { page_->slots[slot_].exporter.store(exporter); }

void HostUsage::freed(uint64_t id) {
  const uint64_t own = page_->slots[slot_].exporter.load();
  for (int slot = 0; own != 0 && slot < kSlots; ++slot) {
    for (Opened& each : page_->slots[slot].opened) {
      if (each.bytes.load() != 0 && each.exporter.load() == own && each.id.load() == id)
        each.freed.store(1);
    }
  }
}

void HostUsage::opened(uint64_t exporter, uint64_t id, int unit, uint64_t bytes) {
  std::lock_guard threads(among_threads);
  for (Opened& each : page_->slots[slot_].opened) {
    if (each.bytes.load() != 0) continue;
    each.exporter.store(exporter);
    each.id.store(id);
    each.unit.store(unit);
    each.freed.store(0);
    each.bytes.store(bytes);
    return;
  }
}

void HostUsage::closed(uint64_t exporter, uint64_t id) {
  std::lock_guard threads(among_threads);
  for (Opened& each : page_->slots[slot_].opened)
    if (each.exporter.load() == exporter && each.id.load() == id) each.bytes.store(0);
}

bool HostUsage::take(int unit, uint64_t bytes, uint64_t total) {
  std::lock_guard threads(among_threads);
  const bool locked = lock(kSlots, /*wait=*/true);
  const uint64_t before = used(unit);
  const bool fits = before <= total && bytes <= total - before;
  if (fits) page_->slots[slot_].bytes[unit].fetch_add(bytes);
  if (locked) unlock(kSlots);
  return fits;
}

void HostUsage::give_back(int unit, uint64_t bytes) {
  page_->slots[slot_].bytes[unit].fetch_sub(bytes);
}

}  // namespace fargpu::sim
