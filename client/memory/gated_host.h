// GatedHost: pinned and registered memory of the application of which only accessed parts are
// fetched from the worker (Pages). Two kinds of gates make accesses wait:
//
// Pinned memory is mapped twice (DualMapping): its pages leave the application's mapping and stay
// in the other one.
//
// Registered memory has one mapping, the application's: what is closed is moved to other addresses
// and back (UserFaults, kMoves), so contents are never lost. Pages that something else holds, an
// adapter or a read under way, and pages that a forked child shares, cannot be moved; they stay.
// Only whole pages inside the range, of memory that has a mapping of its own: no heap, no stack, no
// file.
//
// One per session; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "client/memory/page_gate.h"
#include "client/memory/user_faults.h"
#include "client/stream/observers.h"

namespace fargpu::client {

class GatedHost {
 public:
  // Of registered memory: smaller memory costs less than what its faults cost.
  static constexpr size_t kLeast = size_t{256} << 10;
  // Each takes three of the mappings that a process may have, 65530 by default.
  static constexpr size_t kMostPinned = 8192;

  // `observers`: of kGateableMemory and kGatedMemory this is the owner.
  explicit GatedHost(Observers& observers) : observers_(observers) {}

  // Pinned memory, until remove(). nullptr: there is no memory, it may not be a file's, there are
  // too many, or accesses() cannot be served. A forked child does not have it.
  void* allocate(size_t bytes);
  // The application has registered memory whose pages may be moved, until remove().
  void add(uint64_t address, size_t bytes);
  // What begins there, which has no gate any more. False: allocate() has not made it.
  bool remove(uint64_t address);
  // Of the memory that begins there, for Pages; nullptr: it is none of this, must stay open, or the
  // system cannot serve it.
  std::shared_ptr<PageGate> gate(uint64_t address);
  // What has any of these bytes gets no gate any more. Returns the begins of those that have one.
  std::vector<uint64_t> keep(uint64_t address, size_t bytes);
  // Around a fork: whether the child gets registered memory. Nothing is closed then.
  void show_to_child(bool shown);

  // Accesses to pinned memory, for a thread that may fetch. It is woken when there is something for
  // next().
  UserFaults& accesses() { return accesses_; }
  struct Wanted {
    uint64_t address = 0;
    bool all = false;  // of the memory that begins there, which must then stay open
  };
  bool next(Wanted* wanted);
  // Another thread takes what the system reports of registered memory, when moves().wait() has
  // returned: what comes of it without a fetch is done here. It takes no lock that is held for long
  // and allocates nothing: whoever unmaps memory waits for it, perhaps with a lock of the C
  // library.
  UserFaults& moves() { return moves_; }
  void serve_reports();

 private:
  class Pinned;
  class Moved;
  struct Range {
    size_t bytes = 0;
    bool kept = false;
    bool is_watched = false;
    std::shared_ptr<Pinned> pinned{};  // otherwise it is registered
    std::shared_ptr<Moved> moved{};    // while it is watched
  };
  void serve(const UserFaults::Access& access);
  bool ask(const Wanted& wanted);  // false: there is no room
  // False: it must stay open by now.
  bool watched(uint64_t address, std::shared_ptr<Moved> moved = nullptr);
  void unwatched(uint64_t address);

  Observers& observers_;
  UserFaults accesses_, moves_{UserFaults::Mode::kMoves}, keeps_{UserFaults::Mode::kKeeps};
  std::mutex reporting_;              // while reports are taken; lock order: before mutex_
  std::mutex mutex_;                  // lock order: before that of a Moved
  std::map<uint64_t, Range> ranges_;  // guarded by mutex_, like all below
  size_t pinned_ = 0, moved_ = 0, watched_ = 0;
  std::array<Wanted, 256> wanted_{};
  size_t wanted_count_ = 0;
};

}  // namespace fargpu::client
