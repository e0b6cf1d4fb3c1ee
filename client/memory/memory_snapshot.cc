#include "client/memory/memory_snapshot.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "client/memory/user_faults.h"
#include "common/base/descriptors.h"
#include "common/host/memory_page.h"

namespace fargpu::client {
namespace {

enum Phase : uint32_t { kIdle, kToBegin, kBegun, kToEnd, kToStop };

bool read(uint64_t page, std::span<std::byte> to) {
  const struct iovec local = {to.data(), to.size()}, remote = {as_pointer(page), to.size()};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) ==
         static_cast<ssize_t>(to.size());
}

}  // namespace

struct MemorySnapshot::Shared {
  std::atomic<uint32_t> phase{kIdle};
  std::atomic<bool> lost{false};  // a page that was written could not be kept
  std::atomic<uint32_t> kept{0};
  uint32_t ranges = 0;
  struct Range {
    uint64_t begin, end;
  };
  std::array<Range, kMostRanges> range;
  std::array<uint64_t, kMostKept> page;
  std::array<std::array<std::byte, kPageBytes>, kMostKept> contents;

  const std::byte* find(uint64_t wanted) const {
    const auto end = page.begin() + kept.load(std::memory_order_acquire);
    const auto found = std::find(page.begin(), end, wanted);
    return found == end ? nullptr : contents[static_cast<size_t>(found - page.begin())].data();
  }
};

MemorySnapshot::~MemorySnapshot() {
  if (shared_ == nullptr) return;
  end();
  if (thread_.joinable()) {
    shared_->phase.store(kToStop);
    wake_->signal();
    thread_.join();
  }
  ::munmap(shared_, sizeof(Shared));
}

bool MemorySnapshot::start() {
  if (std::exchange(tried_, true)) return thread_.joinable();
  auto faults = UserFaults::open_descriptor(UserFaults::Mode::kSnapshots);
  auto wake = EventFd::create();
  if (!faults.ok() || !wake.ok()) return false;
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  shared_ = new (memory) Shared;
  faults_ = std::move(*faults);
  wake_ = std::move(*wake);
  try {
    thread_ = Thread([this] { serve(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

bool MemorySnapshot::add(uint64_t address, size_t bytes) {
  if (!start()) return false;
  const uint64_t begin = page_of(address), end = page_from(address + bytes);
  if (shared_->ranges != 0) {
    Shared::Range& last = shared_->range[shared_->ranges - 1];
    if (last.begin <= begin && begin <= last.end) {
      last.end = std::max(last.end, end);
      return true;
    }
  }
  if (shared_->ranges == kMostRanges) return false;
  shared_->range[shared_->ranges++] = {begin, end};
  return true;
}

void MemorySnapshot::ask(uint32_t from) {
  shared_->phase.store(from);
  wake_->signal();
  shared_->phase.wait(from);
}

bool MemorySnapshot::begin() {
  if (!start()) return false;
  ask(kToBegin);
  begun_ = shared_->phase.load() == kBegun;
  return begun_;
}

void MemorySnapshot::restore(uint64_t address, std::span<std::byte> bytes) const {
  if (!begun_ || shared_->kept.load(std::memory_order_acquire) == 0) return;
  for (size_t at = 0; at < bytes.size();) {
    const size_t in_page = (address + at) % kPageBytes;
    const size_t part = std::min(bytes.size() - at, kPageBytes - in_page);
    if (const std::byte* const contents = shared_->find(address + at - in_page))
      std::memcpy(bytes.data() + at, contents + in_page, part);
    at += part;
  }
}

bool MemorySnapshot::is_whole() const {
  return begun_ && !shared_->lost.load() && descriptors::own(faults_.get()) >= 0;
}

void MemorySnapshot::end() {
  if (shared_ == nullptr) return;
  if (std::exchange(begun_, false)) ask(kToEnd);
  shared_->ranges = 0;
}

int MemorySnapshot::control(unsigned long request, void* argument) const {
  // If the program has closed it, the system has let all writes go on.
  const int number = descriptors::own(faults_.get());
  errno = EBADF;
  return number < 0 ? -1 : ::ioctl(number, request, argument);
}

bool MemorySnapshot::protect(uint64_t address, uint64_t bytes, bool protects) {
  struct uffdio_writeprotect range = {};
  range.range = {address, bytes};
  range.mode = protects ? UFFDIO_WRITEPROTECT_MODE_WP : 0;
  int result = control(UFFDIO_WRITEPROTECT, &range);
  while (result != 0 && errno == EAGAIN) result = control(UFFDIO_WRITEPROTECT, &range);
  return result == 0;
}

// All or none.
bool MemorySnapshot::protect_all() {
  for (size_t i = 0; i < shared_->ranges; ++i) {
    const auto [begin, end] = shared_->range[i];
    struct uffdio_register watched = {};
    watched.range = {begin, end - begin};
    watched.mode = UFFDIO_REGISTER_MODE_WP;
    const bool is_watched = control(UFFDIO_REGISTER, &watched) == 0;
    if (is_watched && protect(begin, end - begin, true)) continue;
    release(is_watched ? i + 1 : i);
    return false;
  }
  return true;
}

void MemorySnapshot::release(size_t ranges) {
  for (size_t i = 0; i < ranges; ++i) {
    const auto [begin, end] = shared_->range[i];
    const auto let_go = [this](uint64_t from, uint64_t bytes) {
      const bool is_open = protect(from, bytes, false);
      struct uffdio_range all = {from, bytes};
      return control(UFFDIO_UNREGISTER, &all) == 0 && is_open;
    };
    if (let_go(begin, end - begin)) continue;
    // The program has something else in a part of it now.
    for (uint64_t page = begin; page < end; page += kPageBytes) (void)let_go(page, kPageBytes);
  }
}

// A thread waits to write it.
void MemorySnapshot::keep(uint64_t page) {
  const uint32_t kept = shared_->kept.load();
  const bool is_known = shared_->find(page) != nullptr;
  if (!is_known && kept < kMostKept && read(page, shared_->contents[kept])) {
    shared_->page[kept] = page;
    shared_->kept.store(kept + 1, std::memory_order_release);
  } else if (!is_known) {
    shared_->lost.store(true);
  }
  (void)protect(page, kPageBytes, false);
}

void MemorySnapshot::serve() {
  for (;;) {
    std::array<struct pollfd, 2> waits = {
        {{descriptors::own(faults_.get()), POLLIN, 0}, {wake_->get(), POLLIN, 0}}};
    (void)::poll(waits.data(), waits.size(), -1);
    (void)wake_->drain();
    const uint32_t phase = shared_->phase.load();
    if (phase == kToStop) return;
    if (phase == kToBegin) {
      shared_->lost.store(false);
      shared_->kept.store(0);
      const bool is_begun = protect_all();
      if (!is_begun) shared_->ranges = 0;
      shared_->phase.store(is_begun ? kBegun : kIdle);
      shared_->phase.notify_one();
    } else if (phase == kToEnd) {
      release(shared_->ranges);
      shared_->phase.store(kIdle);
      shared_->phase.notify_one();
    }
    std::array<struct uffd_msg, 16> messages;
    const int number = descriptors::own(faults_.get());
    const ssize_t got = number < 0 ? 0 : ::read(number, messages.data(), sizeof messages);
    for (ssize_t i = 0; i < got / ssize_t{sizeof messages[0]}; ++i) {
      const struct uffd_msg& message = messages[static_cast<size_t>(i)];
      if (message.event == UFFD_EVENT_PAGEFAULT) keep(page_of(message.arg.pagefault.address));
    }
  }
}

}  // namespace fargpu::client
