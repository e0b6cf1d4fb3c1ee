// UserFaults: faults of this process that a thread of ours serves (userfaultfd of Linux).
//
// Memory that is watched and whose pages are not mapped makes the thread that touches it wait, in a
// system call, too, until the pages are opened. For memory of a file in memory (memfd) only: its
// contents stay while pages are closed. A forked child has nothing of it. With kWrites pages may be
// opened for reading alone, and pages that have no memory wait, too.
//
// A program that closes descriptors which it does not know leaves watched memory watched: accesses
// wait and are served as before, up to 5 ms later (OwnTable).
//
// One per session and purpose. The thread is started with the first memory and lives as long as the
// process; it needs no lock that a thread may hold which touches watched memory. Any thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "client/memory/own_table.h"
#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::client {

class UserFaults {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Kind : uint8_t { kAccesses, kWrites };
  explicit UserFaults(Kind kind = Kind::kAccesses) : kind_(kind) {}
  // OK: the system lets this process serve its faults, also those of system calls. Otherwise why
  // not.
  static Status probe(Kind kind = Kind::kAccesses);

  // What the thread does. `serve`: the access at this address waits, until its page is open; or did
  // so when the thread heard of it. The others may be missing. `look`: what is due, and when to be
  // called again. `listen`: before the thread hears of accesses. `go_on`: what is left to do when
  // nobody waits, a little at a time; false: nothing.
  struct Service {
    std::function<void(uint64_t address, bool is_write)> serve;
    std::function<std::optional<Clock::time_point>()> look = nullptr;
    std::function<void()> listen = nullptr;
    std::function<bool()> go_on = nullptr;
  };
  // The first call counts. False: the system refuses.
  bool start(Service service);
  // The thread is to look(), and to go on.
  void wake();

  // Whole pages; without kWrites all of them have memory.
  bool watch(uint64_t address, size_t bytes) const;
  void unwatch(uint64_t address, size_t bytes) const;
  static void close(uint64_t address, size_t bytes);
  // Also what is open already.
  void open(uint64_t address, size_t bytes) const;
  // With kWrites: for reading alone, or for writing, too. `local`: the other mapping of the pages,
  // by which they get memory. False: the system has refused.
  bool open_as(uint64_t address, size_t bytes, bool writable, std::byte* local) const;
  // What is open for reading alone.
  bool let_write(uint64_t address, size_t bytes) const;
  // Accesses that wait are tried again.
  void retry(uint64_t address, size_t bytes) const;

 private:
  static Result<Fd> open_descriptor(Kind kind);
  void run();
  void serve_all();
  // Calls of the descriptor, whose number the program may have closed. As ioctl(2) and read(2).
  int control(unsigned long request, void* argument) const;
  ssize_t read(void* bytes, size_t most) const;
  bool is_closed() const;

  const Kind kind_;
  std::mutex mutex_;      // of start()
  bool started_ = false;  // guarded by mutex_
  Service service_;
  Fd faults_;
  mutable OwnTable kept_;
  std::optional<EventFd> wake_;
};

}  // namespace fargpu::client
