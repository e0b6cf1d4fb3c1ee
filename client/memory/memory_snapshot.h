// MemorySnapshot: memory of the application as it was at one moment, while its threads write on.
//
// begin() makes all pages unwritable (userfaultfd). A thread that writes one waits until all of
// them are: so of what a thread stores in turn, no later part is seen without an earlier one. Then
// a thread of ours keeps the page as it was, and the write goes on. What is read meanwhile is
// corrected by restore(). At most kMostKept pages are kept.
//
// Our own threads may write such pages, too (a heap's). So the thread that serves allocates
// nothing, takes no lock, and writes no memory but its own.
//
// What the system or a device writes by pinned pages (O_DIRECT, adapters) is not noticed. One
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/base/fd.h"
#include "common/host/thread.h"

namespace fargpu::client {

class MemorySnapshot {
 public:
  static constexpr size_t kMostRanges = 512, kMostKept = 256;

  MemorySnapshot() = default;
  ~MemorySnapshot();
  MemorySnapshot(const MemorySnapshot&) = delete;
  MemorySnapshot& operator=(const MemorySnapshot&) = delete;

  // One more range of bytes, before begin(). False: there are too many.
  bool add(uint64_t address, size_t bytes);
  // False: the system cannot do that with one of the ranges, and nothing has changed.
  bool begin();
  bool is_begun() const { return begun_; }
  // `bytes` were read from `address` on since begin().
  void restore(uint64_t address, std::span<std::byte> bytes) const;
  // Whether all that was read since begin() is as it was then.
  bool is_whole() const;
  // Does nothing before begin(), but forgets what was added.
  void end();

 private:
  struct Shared;
  bool start();
  void serve();
  bool protect_all();
  void release(size_t ranges);
  void keep(uint64_t page);
  bool protect(uint64_t address, uint64_t bytes, bool protects);
  int control(unsigned long request, void* argument) const;
  // The thread that serves goes from `from` to another phase.
  void ask(uint32_t from);

  bool tried_ = false, begun_ = false;
  Shared* shared_ = nullptr;  // memory of its own
  Fd faults_;
  std::optional<EventFd> wake_;
  Thread thread_;
};

}  // namespace fargpu::client
