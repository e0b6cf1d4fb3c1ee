// Which memory of the application is registered with the transport: an interval map. Every byte is
// registered once, and memory that is used again costs one look-up.
//
// get() finds the registration that contains the memory, also by a pointer into its middle, or
// makes one. Memory that overlaps known registrations is merged with them into one. Only memory
// that callers named is ever registered, so a key never exposes neighbouring bytes. Code that
// frees, unmaps or unregisters memory calls invalidate() first: the same addresses may get other
// pages later, while the registration would still refer to the old ones. A registration that a
// caller holds stays valid until the caller releases it. At most max_bytes stay registered for
// later use; the least recently used go first. Any thread; registering happens under the lock.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "common/transport/remote_memory.h"

namespace fargpu::transport {

class RegistrationCache {
 public:
  using Registration = std::shared_ptr<const RegisteredMemory>;
  struct Statistics {
    uint64_t hits = 0, misses = 0, evicted = 0, invalidated = 0;
    uint64_t bytes = 0;  // now
    size_t ranges = 0;   // now
  };

  // `memory` outlives the cache.
  RegistrationCache(RemoteMemory& memory, uint64_t max_bytes)
      : memory_(memory), max_bytes_(max_bytes) {}

  // Memory larger than max_bytes is registered for the caller only. Errors as of register_memory();
  // when registrations run short, unused ones are dropped first.
  Result<Registration> get(std::span<std::byte> memory, RemoteAccess access);
  // The same without making one: null when there is none.
  Registration find(std::span<const std::byte> memory, RemoteAccess access);
  // Forgets every registration that has a byte in this range.
  void invalidate(const void* begin, size_t bytes);
  void clear();
  Statistics statistics() const;

 private:
  struct CachedRange {
    uintptr_t begin, end;
    RemoteAccess access;
    Registration registration;
    bool in_use() const { return registration.use_count() > 1; }
  };
  using CachedRanges = std::list<CachedRange>;  // the last used first
  using ByBegin = std::map<uintptr_t, CachedRanges::iterator>;

  // All with mutex_ held. The first range that ends after `begin`.
  ByBegin::iterator first_touching(uintptr_t begin);
  CachedRange* holding(uintptr_t begin, uintptr_t end, RemoteAccess access);
  void erase(ByBegin::iterator range);
  // Gives up the range that was unused longest. False: all are in use.
  bool evict_one();
  Result<Registration> make(uintptr_t begin, uintptr_t end, RemoteAccess access);

  RemoteMemory& memory_;
  const uint64_t max_bytes_;
  mutable std::mutex mutex_;
  CachedRanges ranges_;  // guarded by mutex_, like these
  ByBegin by_begin_;     // never overlapping
  Statistics statistics_;
};

}  // namespace fargpu::transport
