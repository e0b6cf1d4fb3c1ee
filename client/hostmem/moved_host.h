// MovedHost: registered memory of the application of which only accessed parts are fetched from the
// worker (Pages). It has one mapping, the application's: what is closed is moved to other addresses
// and back (UserFaults, kMoves), so contents are never lost. Pages that something else holds, an
// adapter or a read under way, and pages that a forked child shares, cannot be moved; they stay.
//
// Only whole pages inside the range, of memory that has a mapping of its own: no heap, no stack, no
// file. One per session; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "client/hostmem/page_gate.h"
#include "client/memory/user_faults.h"
#include "client/stream/observers.h"

namespace fargpu::client {

class MovedHost {
 public:
  // Smaller memory costs less than what its faults cost.
  static constexpr size_t kLeast = size_t{256} << 10;

  // `observers`: of kMovableMemory and kMovedMemory this is the owner.
  explicit MovedHost(Observers& observers) : observers_(observers) {}

  // The application has registered memory whose pages may be moved, until remove().
  void add(uint64_t address, size_t bytes);
  void remove(uint64_t address);
  // Of the memory that begins there, for Pages; nullptr: it is none of this, must stay open, or the
  // system cannot move it.
  std::shared_ptr<PageGate> gate(uint64_t address);
  // What has any of these bytes gets no gate any more. Returns the begins of those that have one.
  std::vector<uint64_t> keep(uint64_t address, size_t bytes);
  // Around a fork: whether the child gets the memory. Nothing is closed then.
  void show_to_child(bool shown);

  // One thread takes what the system reports, when faults().wait() has returned: what comes of it
  // without a fetch is done here. It takes no lock that is held for long and allocates nothing:
  // whoever unmaps memory waits for it, perhaps with a lock of the C library.
  UserFaults& faults() { return moves_; }
  void serve_reports();
  // What is left for a thread that may fetch; false: nothing.
  struct Wanted {
    uint64_t address = 0;
    bool all = false;  // of the memory that begins there, which must then stay open
  };
  bool next(Wanted* wanted);
  // Nobody has the address: whoever waits for it tries again.
  void retry(uint64_t address);
  // There is something for next(). Set before the first gate.
  UserFaults* waker = nullptr;

 private:
  class Memory;
  struct RegisteredRange {
    size_t bytes = 0;
    bool kept = false;
    std::shared_ptr<Memory> memory{};  // while it is watched
  };
  void serve(const UserFaults::Access& access);
  // What the application has done to its memory by now is known when this returns.
  void await_reports();
  void ask(const Wanted& wanted);
  // False: it must stay open by now.
  bool watched(uint64_t address, std::shared_ptr<Memory> memory);
  void unwatched(uint64_t address);

  Observers& observers_;
  UserFaults moves_{UserFaults::Mode::kMoves}, keeps_{UserFaults::Mode::kKeeps};
  std::mutex reporting_;  // while reports are taken; lock order: before mutex_
  std::mutex mutex_;      // lock order: before that of a Memory
  std::map<uint64_t, RegisteredRange> ranges_;  // guarded by mutex_, like all below
  size_t watched_ = 0;
  std::array<Wanted, 256> wanted_{};
  size_t wanted_count_ = 0;
};

}  // namespace fargpu::client
