#include "client/memory/gated_host.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <thread>
#include <utility>

#include "client/link/input.h"
#include "client/memory/dual_gate.h"
#include "client/memory/dual_mapping.h"
#include "common/host/mapped_memory.h"
#include "common/host/memory_page.h"

namespace fargpu::client {
namespace {

// Each takes four of the mappings that a process may have, 65530 by default.
constexpr size_t kMostMoved = 4096;

}  // namespace

class GatedHost::Pinned final : public DualGate {
 public:
  Pinned(GatedHost& host, DualMapping mapping)
      : DualGate(&host.accesses_, mapping.address(), mapping.local(mapping.address()),
                 mapping.bytes()),
        host_(host),
        mapping_(std::move(mapping)) {}

  bool watch() override {
    // A page without memory would be made on access, without a reported fault.
    void* const pages = as_pointer(mapping_.address());
    if (::madvise(pages, mapping_.bytes(), MADV_POPULATE_WRITE) != 0 || !DualGate::watch())
      return false;
    if (host_.watched(mapping_.address())) return true;
    DualGate::unwatch();
    return false;
  }
  void unwatch() override {
    DualGate::unwatch();
    host_.unwatched(mapping_.address());
  }

 private:
  GatedHost& host_;
  const DualMapping mapping_;
};

// Registered memory.
class GatedHost::Moved final : public PageGate, public std::enable_shared_from_this<Moved> {
 public:
  Moved(GatedHost& host, uint64_t address, size_t bytes)
      : host_(host),
        address_(address),
        bytes_(bytes),
        first_(page_from(address)),
        end_(page_of(address + bytes)),
        closed_((end_ - first_ + kBlock - 1) / kBlock) {}
  ~Moved() override {
    if (shadow_ != 0) ::munmap(as_pointer(shadow_), end_ - first_ + table_bytes());
  }
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;

  std::byte* local() const override {
    return reinterpret_cast<std::byte*>(shadow_ - (first_ - address_));
  }
  bool is_moved() const override { return true; }
  size_t head() const override { return first_ - address_; }
  size_t tail() const override { return address_ + bytes_ - end_; }

  bool watch() override;
  size_t close(size_t offset, size_t bytes) override;
  void open(size_t offset, size_t bytes) override;
  void fail(size_t offset, size_t bytes) override { open(offset, bytes); }
  void unwatch() override;

  // Of the thread that serves.
  bool on_access(uint64_t address);  // false: the page is none of it
  void on_change(const UserFaults::Access& report);
  void show_to_child(bool shown);

 private:
  enum : uint64_t { kGone = 1, kEmptied = 2 };
  // While no report has been read that was not taken yet: the application goes on when it was read.
  struct Lock {
    explicit Lock(Moved& moved) : reports(moved.host_.reporting_), own(moved.mutex_) {}
    std::unique_lock<std::mutex> reports, own;
  };
  // The blocks here have no head.
  uint64_t at(size_t block) const { return std::min(first_ + block * kBlock, end_); }
  uint64_t shadow_of(uint64_t address) const { return shadow_ + (address - first_); }
  uint64_t table_bytes() const {
    return page_from((end_ - first_) / kPageBytes * sizeof(uint64_t));
  }
  // All of these need mutex_. How far the application has moved a page of the range, and what else
  // it has done to it. A page that it has emptied stays so, whatever comes for it.
  uint64_t& change(uint64_t page) const {
    return reinterpret_cast<uint64_t*>(shadow_ + (end_ - first_))[(page - first_) / kPageBytes];
  }
  // Where it has the page now; 0: nowhere.
  uint64_t now_at(uint64_t page) const {
    if (!is_changed_) return page;
    return (change(page) & kGone) != 0 ? 0 : page + page_of(change(page));
  }
  // Which page of the range it has at an address; 0: none.
  uint64_t was_at(uint64_t address) const;
  // The range as it is now, in pieces.
  template <typename Visit>
  void each_piece(const Visit& visit) const;
  bool is_closed(uint64_t page) const { return closed_[(page - first_) / kBlock]; }
  void open_pages(Lock& lock, uint64_t begin, uint64_t end);
  bool open_page(uint64_t page, int error);
  void ask_to_open();

  static constexpr int kMostTries = 50;

  GatedHost& host_;
  const uint64_t address_;
  const size_t bytes_;
  const uint64_t first_, end_;  // whole pages
  uint64_t shadow_ = 0;         // and behind it the changes, zero at first
  std::mutex changing_;  // lock order: before mutex_, which is given up where the system is busy
  std::mutex mutex_;
  std::vector<bool> closed_;  // guarded by mutex_, like all below
  bool fixed_ = false;        // nothing is closed any more
  bool asked_ = false;        // that all of it be opened
  bool is_changed_ = false;   // some pages were
};

bool GatedHost::Moved::watch() {
  const size_t bytes = end_ - first_;
  auto* const pages = as_pointer(first_);
  void* const shadow = ::mmap(nullptr, bytes + table_bytes(), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shadow == MAP_FAILED) return false;
  shadow_ = reinterpret_cast<uint64_t>(shadow);
  ::madvise(shadow, bytes + table_bytes(), MADV_DONTFORK);
  if (!host_.keeps_.watch(shadow_, bytes) || !host_.moves_.watch(first_, bytes)) return false;
  // A child that is made past the handlers of fork() faults instead of reading zeros.
  if (::madvise(pages, bytes, MADV_DONTFORK) == 0) {
    const bool is_known = host_.watched(address_, shared_from_this());
    const size_t closed = is_known ? close(first_ - address_, std::min(bytes, kBlock)) : 0;
    open(first_ - address_, std::min(bytes, kBlock));
    if (closed != 0) return true;
  }
  unwatch();
  return false;
}

size_t GatedHost::Moved::close(size_t offset, size_t bytes) {
  const uint64_t begin = address_ + offset;
  if (begin < first_ || begin >= end_ || bytes == 0) return 0;
  uint64_t end = std::min(begin + bytes, end_);
  std::lock_guard no_other(changing_);
  Lock lock(*this);
  const size_t block = (begin - first_) / kBlock;
  size_t until = block;
  while (at(until) < end && closed_[until] == closed_[block]) ++until;
  end = std::min(end, at(until));
  if (closed_[block]) return end - begin;
  if (fixed_) return 0;
  // What the application has mapped there instead is not taken.
  if (!host_.moves_.is_watched(begin) || !host_.moves_.is_watched(end - kPageBytes)) return 0;
  const auto first = closed_.begin() + static_cast<ptrdiff_t>(block);
  const auto last = closed_.begin() + static_cast<ptrdiff_t>(until);
  std::fill(first, last, true);
  uint64_t reached = begin;
  for (int tries = 0; reached < end;) {
    int error = 0;
    const size_t moved = host_.keeps_.move(shadow_of(reached), reached, end - reached, &error);
    reached += moved;
    if (reached == end) return end - begin;
    // EAGAIN: something else is being done to the page, or to the application's mappings.
    if (moved == 0 && (error != EAGAIN || tries++ >= kMostTries)) break;
    if (moved == 0) std::this_thread::yield();
  }
  // A block is closed as a whole or not at all.
  const uint64_t stays = (reached - first_) / kBlock * kBlock + first_;
  open_pages(lock, stays, reached);
  std::fill(closed_.begin() + static_cast<ptrdiff_t>((stays - first_) / kBlock), last, false);
  return stays - begin;
}

void GatedHost::Moved::open(size_t offset, size_t bytes) {
  const uint64_t begin = std::max(address_ + offset, first_);
  const uint64_t end = std::min(address_ + offset + bytes, end_);
  if (begin >= end) return;
  std::lock_guard no_other(changing_);
  Lock lock(*this);
  for (size_t block = (begin - first_) / kBlock; at(block) < end; ++block) {
    // The pages of an open block are where they belong; what lies in the shadow is nothing.
    if (!closed_[block]) continue;
    size_t until = block + 1;
    while (at(until) < end && closed_[until]) ++until;
    open_pages(lock, at(block), at(until));
    std::fill(closed_.begin() + static_cast<ptrdiff_t>(block),
              closed_.begin() + static_cast<ptrdiff_t>(until), false);
    block = until - 1;
  }
  if (!is_changed_) return host_.moves_.retry(begin, end - begin);
  for (uint64_t page = begin; page < end; page += kPageBytes)
    if (const uint64_t now = now_at(page); now != 0) host_.moves_.retry(now, kPageBytes);
}

void GatedHost::Moved::open_pages(Lock& lock, uint64_t begin, uint64_t end) {
  for (uint64_t page = begin; page < end;) {
    int error = 0;
    // The application may have moved pages apart.
    const size_t bytes = is_changed_ ? kPageBytes : end - page;
    const uint64_t to = now_at(page);
    if (is_changed_ && (std::exchange(change(page), change(page) & ~kEmptied) & kEmptied) != 0)
      ::madvise(as_pointer(shadow_of(page)), kPageBytes, MADV_DONTNEED);
    page += to == 0 ? bytes : host_.moves_.move(to, shadow_of(page), bytes, &error);
    if (page >= end || error == 0) continue;
    if (error != EAGAIN && open_page(page, error)) {
      page += kPageBytes;
      continue;
    }
    // Perhaps until a report has been read. It may say where the page is now.
    lock.own.unlock();
    lock.reports.unlock();
    std::this_thread::yield();
    lock.reports.lock();
    lock.own.lock();
  }
}

// A page that could not be moved back. False: to be tried again.
bool GatedHost::Moved::open_page(uint64_t page, int error) {
  if (error == EEXIST) return true;
  const uint64_t to = now_at(page);
  int result = 0;
  if (error == ENOENT) {
    // It had no memory, or the application has emptied it.
    result = host_.moves_.zero_page(to);
  } else {
    // It has another protection now, or is locked.
    result = host_.moves_.copy_page(to, shadow_of(page));
    if (result == 0) ::madvise(as_pointer(shadow_of(page)), kPageBytes, MADV_DONTNEED);
  }
  return result == 0 || (errno != EAGAIN && errno != ENOMEM);
}

void GatedHost::Moved::unwatch() {
  open(first_ - address_, end_ - first_);
  {
    std::lock_guard lock(mutex_);
    each_piece([this](uint64_t begin, size_t bytes) {
      host_.moves_.unwatch(begin, bytes);
      ::madvise(as_pointer(begin), bytes, MADV_DOFORK);
    });
  }
  host_.unwatched(address_);
}

uint64_t GatedHost::Moved::was_at(uint64_t address) const {
  const uint64_t page = page_of(address);
  if (!is_changed_) return page >= first_ && page < end_ ? page : 0;
  for (uint64_t was = first_; was < end_; was += kPageBytes)
    if (now_at(was) == page) return was;
  return 0;
}

template <typename Visit>
void GatedHost::Moved::each_piece(const Visit& visit) const {
  for (uint64_t begin = first_, end = 0; begin < end_; begin = end) {
    end = is_changed_ ? begin + kPageBytes : end_;
    while (end < end_ && change(end) == change(begin)) end += kPageBytes;
    if (const uint64_t now = now_at(begin); now != 0) visit(now, end - begin);
  }
}

bool GatedHost::Moved::on_access(uint64_t address) {
  std::lock_guard lock(mutex_);
  const uint64_t page = page_of(address), was = was_at(page);
  if (was == 0) return false;
  ask_to_open();
  if (is_closed(was) && host_.ask({was, false})) return true;
  // The application has emptied it, or it is asked for once more.
  if (is_closed(was) || host_.moves_.zero_page(page) != 0) host_.moves_.retry(page, kPageBytes);
  return true;
}

void GatedHost::Moved::on_change(const UserFaults::Access& report) {
  using What = UserFaults::Access::What;
  std::lock_guard lock(mutex_);
  const uint64_t begin = is_changed_ ? first_ : std::max(first_, report.address);
  const uint64_t end = is_changed_ ? end_ : std::min(end_, report.end);
  for (uint64_t page = begin; page < end; page += kPageBytes) {
    const uint64_t now = now_at(page);
    if (now < report.address || now >= report.end) continue;
    is_changed_ = true;
    if (report.what == What::kMoved)
      change(page) += report.target - report.address;
    else if (report.what == What::kUnmapped)
      change(page) = kGone;
    else if (is_closed(page))
      change(page) |= kEmptied;
  }
  // The pages are emptied some time after the report: nothing may be closed in between.
  fixed_ |= is_changed_;
  ask_to_open();
}

// Again with each access, while too many wait.
void GatedHost::Moved::ask_to_open() {
  if (fixed_ && !asked_) asked_ = host_.ask({address_, true});
}

void GatedHost::Moved::show_to_child(bool shown) {
  std::lock_guard lock(mutex_);
  each_piece([shown](uint64_t begin, size_t bytes) {
    ::madvise(as_pointer(begin), bytes, shown ? MADV_DOFORK : MADV_DONTFORK);
  });
}

void* GatedHost::allocate(size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX - kPageBytes || !accesses_.open()) return nullptr;
  {
    std::lock_guard lock(mutex_);
    if (pinned_ >= kMostPinned) return nullptr;
  }
  auto mapping = DualMapping::make(AddressUse::kPinned, page_from(bytes));
  if (!mapping) return nullptr;
  const uint64_t address = mapping->address();
  void* const memory = as_pointer(address);
  if (::mprotect(memory, mapping->bytes(), PROT_READ | PROT_WRITE) != 0) return nullptr;
  ::madvise(memory, mapping->bytes(), MADV_NOHUGEPAGE);  // pages come one by one
  auto pinned = std::make_shared<Pinned>(*this, std::move(*mapping));
  std::lock_guard lock(mutex_);
  ranges_.emplace(address, Range{.bytes = bytes, .pinned = std::move(pinned)});
  ++pinned_;
  observers_.add(Observers::kGateableMemory);
  return memory;
}

void GatedHost::add(uint64_t address, size_t bytes) {
  if (bytes < kLeast) return;
  std::lock_guard lock(mutex_);
  ranges_.emplace(address, Range{.bytes = bytes});
  observers_.add(Observers::kGateableMemory);
}

bool GatedHost::remove(uint64_t address) {
  unwatched(address);
  std::shared_ptr<Pinned> pinned;  // outlives the lock
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) return false;
  pinned.swap(found->second.pinned);
  ranges_.erase(found);
  if (pinned != nullptr) --pinned_;
  observers_.set(Observers::kGateableMemory, !ranges_.empty());
  return pinned != nullptr;
}

std::shared_ptr<PageGate> GatedHost::gate(uint64_t address) {
  size_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = ranges_.find(address);
    if (found == ranges_.end() || found->second.kept) return nullptr;
    if (found->second.pinned != nullptr) return found->second.pinned;
    if (moved_ >= kMostMoved) return nullptr;
    bytes = found->second.bytes;
  }
  if (!is_own_mapping(page_from(address), page_of(address + bytes))) return nullptr;
  if (!accesses_.open() || !moves_.open() || !keeps_.open()) return nullptr;
  return std::make_shared<Moved>(*this, address, bytes);
}

std::vector<uint64_t> GatedHost::keep(uint64_t address, size_t bytes) {
  const auto each_watched = [&](const auto& visit) {
    std::lock_guard lock(mutex_);
    auto range = ranges_.upper_bound(address);
    if (range != ranges_.begin()) --range;
    for (; range != ranges_.end() && range->first < address + bytes; ++range) {
      if (range->first + range->second.bytes <= address) continue;
      range->second.kept = true;
      if (range->second.is_watched) visit(range->first);
    }
  };
  // Copies call this: nothing is allocated where nothing is watched, and nothing under the lock,
  // which a report may need. What is kept is not watched any more, so it cannot become more.
  size_t count = 0;
  each_watched([&](uint64_t) { ++count; });
  std::vector<uint64_t> open;
  if (count == 0) return open;
  open.reserve(count);
  each_watched([&](uint64_t begin) {
    if (open.size() < count) open.push_back(begin);
  });
  return open;
}

void GatedHost::show_to_child(bool shown) {
  std::scoped_lock lock(reporting_, mutex_);
  for (auto& [address, range] : ranges_)
    if (range.moved != nullptr) range.moved->show_to_child(shown);
}

bool GatedHost::watched(uint64_t address, std::shared_ptr<Moved> moved) {
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || found->second.kept) return false;
  if (moved != nullptr) ++moved_;
  found->second.moved = std::move(moved);
  found->second.is_watched = true;
  ++watched_;
  observers_.add(Observers::kGatedMemory);
  faulting_allocations.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void GatedHost::unwatched(uint64_t address) {
  std::shared_ptr<Moved> moved;  // outlives the lock
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || !std::exchange(found->second.is_watched, false)) return;
  moved.swap(found->second.moved);
  if (moved != nullptr) --moved_;
  observers_.set(Observers::kGatedMemory, --watched_ != 0);
  faulting_allocations.fetch_sub(1, std::memory_order_relaxed);
}

void GatedHost::serve_reports() {
  UserFaults::Accesses found;
  std::lock_guard not_known_yet(reporting_);
  for (const UserFaults::Access& access : moves_.take(found)) serve(access);
}

void GatedHost::serve(const UserFaults::Access& access) {
  using What = UserFaults::Access::What;
  std::lock_guard lock(mutex_);
  for (auto& [address, range] : ranges_) {
    if (range.moved == nullptr) continue;
    if (access.what != What::kAccess)
      range.moved->on_change(access);
    else if (range.moved->on_access(access.address))
      return;
  }
  if (access.what != What::kAccess) return;
  // Memory that has been opened for good, and was then emptied.
  const uint64_t page = page_of(access.address);
  if (moves_.zero_page(page) != 0) moves_.retry(page, kPageBytes);
}

// Needs mutex_, as its callers have it.
bool GatedHost::ask(const Wanted& wanted) {
  if (wanted_count_ == wanted_.size()) return false;
  wanted_[wanted_count_++] = wanted;
  accesses_.wake();
  return true;
}

bool GatedHost::next(Wanted* wanted) {
  std::lock_guard lock(mutex_);
  if (wanted_count_ == 0) return false;
  *wanted = wanted_[0];
  std::copy(wanted_.begin() + 1, wanted_.begin() + static_cast<ptrdiff_t>(wanted_count_),
            wanted_.begin());
  --wanted_count_;
  return true;
}

}  // namespace fargpu::client
