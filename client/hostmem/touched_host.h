// TouchedHost: pinned memory of the application of which only accessed parts are fetched from the
// worker (Pages). It is mapped twice: at the application's address, where accesses may have to
// wait, and elsewhere for fargpu. A forked child has neither. One per session; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "client/hostmem/page_gate.h"
#include "client/memory/user_faults.h"
#include "client/stream/observers.h"

namespace fargpu::client {

class TouchedHost {
 public:
  // `observers`: of kTouchedMemory this is the owner.
  explicit TouchedHost(Observers& observers) : observers_(observers) {}
  // Each takes three of the mappings that a process may have, 65530 by default.
  static constexpr size_t kMostMemories = 8192;
  // nullptr: there is no memory, it may not be a file's, there are too many, or faults() cannot be
  // served.
  void* allocate(size_t bytes);
  // Of the memory that begins there; nullptr: it is none of this, or must stay open.
  std::shared_ptr<PageGate> gate(uint64_t address) const;
  // The memory that begins there gets no gate any more. False: it is none of this, or kept() was
  // called for it.
  bool keep(uint64_t address);
  // It has none.
  void kept(uint64_t address);
  // Before free_host() (reserve.h). Nothing is done for other memory.
  void free(uint64_t address);
  UserFaults& faults() { return faults_; }

 private:
  enum class Kept : uint8_t { kNo, kWanted, kYes };
  class Memory;

  size_t count() const;

  Observers& observers_;
  UserFaults faults_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Memory>> memories_;  // guarded by mutex_
};

}  // namespace fargpu::client
