#include "common/transport/registration_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fargpu::transport {
namespace {

uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

RegistrationCache::ByBegin::iterator RegistrationCache::first_touching(uintptr_t begin) {
  auto range = by_begin_.upper_bound(begin);
  if (range != by_begin_.begin() && std::prev(range)->second->end > begin) --range;
  return range;
}

RegistrationCache::CachedRange* RegistrationCache::holding(uintptr_t begin, uintptr_t end,
                                                           RemoteAccess access) {
  const auto found = first_touching(begin);
  if (found == by_begin_.end()) return nullptr;
  CachedRange& range = *found->second;
  if (range.begin > begin || range.end < end || range.access < access) return nullptr;
  ranges_.splice(ranges_.begin(), ranges_, found->second);
  return &range;
}

void RegistrationCache::erase(ByBegin::iterator range) {
  statistics_.bytes -= range->second->end - range->second->begin;
  --statistics_.ranges;
  ranges_.erase(range->second);
  by_begin_.erase(range);
}

bool RegistrationCache::evict_one() {
  const auto unused = std::find_if(ranges_.rbegin(), ranges_.rend(),
                                   [](const CachedRange& range) { return !range.in_use(); });
  if (unused == ranges_.rend()) return false;
  erase(by_begin_.find(unused->begin));
  ++statistics_.evicted;
  return true;
}

Result<RegistrationCache::Registration> RegistrationCache::make(uintptr_t begin, uintptr_t end,
                                                                RemoteAccess access) {
  for (;;) {
    auto made = memory_.register_memory({reinterpret_cast<std::byte*>(begin), end - begin}, access);
    if (made.ok()) return Registration(std::move(*made));
    // Perhaps the cache itself holds the scarce resource.
    if (made.status().code() != StatusCode::kNoCapacity || !evict_one()) return made.status();
  }
}

Result<RegistrationCache::Registration> RegistrationCache::get(std::span<std::byte> memory,
                                                               RemoteAccess access) {
  const uintptr_t wanted_begin = address(memory.data()), wanted_end = wanted_begin + memory.size();
  std::lock_guard lock(mutex_);
  if (CachedRange* range = holding(wanted_begin, wanted_end, access)) {
    ++statistics_.hits;
    return range->registration;
  }
  ++statistics_.misses;
  if (memory.size() > max_bytes_) return make(wanted_begin, wanted_end, access);

  // Merged with all registrations that it overlaps.
  uintptr_t begin = wanted_begin, end = wanted_end;
  RemoteAccess most = access;
  for (auto range = first_touching(begin); range != by_begin_.end() && range->first < wanted_end;
       ++range) {
    begin = std::min(begin, range->second->begin);
    end = std::max(end, range->second->end);
    most = std::max(most, range->second->access);
  }
  if (end - begin > max_bytes_) begin = wanted_begin, end = wanted_end, most = access;
  // The old ones are dropped first, so that their bytes are not locked twice; a caller that uses
  // one keeps it alive.
  for (auto range = first_touching(wanted_begin);
       range != by_begin_.end() && range->first < wanted_end;) {
    const auto next = std::next(range);
    erase(range);
    range = next;
  }
  while (statistics_.bytes + (end - begin) > max_bytes_ && evict_one()) {
  }
  auto made = make(begin, end, most);
  if (!made.ok() && (begin != wanted_begin || end != wanted_end)) {
    // Part of the old registrations may no longer be registrable; the requested memory may still
    // be.
    begin = wanted_begin, end = wanted_end, most = access;
    made = make(begin, end, most);
  }
  // When everything else is in use, the limit is kept by not caching this one.
  if (!made.ok() || statistics_.bytes + (end - begin) > max_bytes_) return made;
  ranges_.push_front(CachedRange{begin, end, most, *made});
  by_begin_.emplace(begin, ranges_.begin());
  statistics_.bytes += end - begin;
  ++statistics_.ranges;
  return made;
}

RegistrationCache::Registration RegistrationCache::find(std::span<const std::byte> memory,
                                                        RemoteAccess access) {
  std::lock_guard lock(mutex_);
  CachedRange* range =
      holding(address(memory.data()), address(memory.data()) + memory.size(), access);
  if (range == nullptr) return nullptr;
  ++statistics_.hits;
  return range->registration;
}

void RegistrationCache::invalidate(const void* begin, size_t bytes) {
  std::lock_guard lock(mutex_);
  const uintptr_t end = address(begin) + bytes;
  for (auto range = first_touching(address(begin));
       range != by_begin_.end() && range->first < end;) {
    const auto next = std::next(range);
    erase(range);
    ++statistics_.invalidated;
    range = next;
  }
}

void RegistrationCache::clear() {
  std::lock_guard lock(mutex_);
  while (!by_begin_.empty()) erase(by_begin_.begin());
}

RegistrationCache::Statistics RegistrationCache::statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace fargpu::transport
