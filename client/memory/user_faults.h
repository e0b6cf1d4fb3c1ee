// UserFaults: faults of this process that its owner serves on a thread (userfaultfd of Linux).
//
// Memory that is watched and whose pages are not mapped makes the thread that touches it wait, in a
// system call, too, until the pages are opened. For memory of a file in memory (memfd) only: its
// contents stay while pages are closed. A forked child does not have it. With kWrites pages may be
// opened for reading alone, and pages that have no memory wait, too.
//
// Anonymous memory has no file: there, with kMoves, pages are moved away and back (Linux 6.8). What
// the program does to such memory (unmaps, moves or empties it) is reported, too; it waits until
// the report is taken. The memory to which pages are moved is watched with kKeeps, and no access to
// it waits. With kSnapshots pages are made unwritable for a while (memory_snapshot.h), of any kind
// of memory.
//
// A program that closes descriptors which it does not know leaves watched memory watched: accesses
// wait and are served as before, up to 5 ms later (OwnTable).
//
// One per session and purpose. The thread lives as long as the process, and needs no lock that a
// thread may hold which touches watched memory. Any thread, but wait() and take(): the one that
// serves.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "client/memory/own_table.h"
#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::client {

class UserFaults {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Mode : uint8_t { kAccesses, kWrites, kMoves, kKeeps, kSnapshots };
  explicit UserFaults(Mode mode = Mode::kAccesses) : mode_(mode) {}
  // OK: the system lets this process serve its faults, including faults of system calls. Otherwise
  // why not.
  static Status probe(Mode mode = Mode::kAccesses);
  static Result<Fd> open_descriptor(Mode mode);

  // Before everything else; does nothing when it is open. False: the system refuses.
  bool open();
  // Until accesses wait, wake() was called, or the time has come.
  void wait(std::optional<Clock::time_point> until);
  // An access that waits until its page is open, or waited when it was reported. With kMoves also
  // what was done to [address, end): unmapped, emptied, or moved to `target`.
  struct Access {
    enum class What : uint8_t { kAccess, kUnmapped, kEmptied, kMoved };
    uint64_t address;
    bool is_write;
    What what = What::kAccess;
    uint64_t end = 0, target = 0;
  };
  static constexpr size_t kMostAccesses = 16;
  using Accesses = std::array<Access, kMostAccesses>;
  // The reported accesses, in `found`. The rest is left for the next wait().
  std::span<const Access> take(Accesses& found);
  void wake();

  // Whole pages; without kWrites all of them have memory.
  bool watch(uint64_t address, size_t bytes) const;
  void unwatch(uint64_t address, size_t bytes) const;
  static void close(uint64_t address, size_t bytes);
  // Includes pages that are open already. With kWrites also for reading alone. `local`: the other
  // mapping of the pages, by which they get memory. False: the system has refused.
  bool open(uint64_t address, size_t bytes, bool writable, std::byte* local) const;
  // Pages that are open for reading only.
  bool let_write(uint64_t address, size_t bytes) const;
  // Accesses that wait are tried again.
  void retry(uint64_t address, size_t bytes) const;

  // With kMoves and kKeeps, whole pages. move(): from memory of this process to watched memory,
  // where they are missing; threads that wait for them go on. How many bytes were moved; where it
  // stopped, *error is why (EAGAIN: to be tried again).
  size_t move(uint64_t to, uint64_t from, size_t bytes, int* error) const;
  // A missing page becomes a copy, or zeros; as ioctl(2).
  int copy_page(uint64_t to, uint64_t from) const;
  int zero_page(uint64_t address) const;
  // Whether the page is watched by this process.
  bool is_watched(uint64_t page) const;

 private:
  // Calls of the descriptor, whose number the program may have closed. As ioctl(2) and read(2).
  int control(unsigned long request, void* argument) const;
  ssize_t read(void* bytes, size_t most) const;
  bool is_closed() const;

  const Mode mode_;
  std::mutex mutex_;      // of open()
  bool is_open_ = false;  // guarded by mutex_
  Fd faults_;
  mutable OwnTable kept_;
  std::optional<EventFd> wake_;
};

}  // namespace fargpu::client
