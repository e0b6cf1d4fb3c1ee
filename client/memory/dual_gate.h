// DualGate: the gate of memory that is mapped twice (DualMapping). Accesses to what is closed are
// messages to a thread, by userfaultfd, or signals, by the protection of pages
// (client/managed/fault_handler.h). At first all is open; `false`: the system has refused, and more
// may wait than should.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/memory/page_gate.h"

namespace fargpu::client {

class UserFaults;

class DualGate : public PageGate {
 public:
  // Whole pages. `faults`, started, outlives this; nullptr: accesses are signals.
  DualGate(const UserFaults* faults, uint64_t address, std::byte* local, size_t bytes)
      : faults_(faults), address_(address), local_(local), bytes_(bytes) {}

  std::byte* local() const override { return local_; }
  // With signals there is nothing to watch.
  bool watch() override;
  size_t close(size_t offset, size_t bytes) override;
  void open(size_t offset, size_t bytes) override { (void)open_as(offset, bytes, true); }
  void fail(size_t offset, size_t bytes) override;
  void unwatch() override;

  // Of inaccessible memory, instead of watch(). `is_open`: all accesses go on, and it is watched
  // from the first close() on. Otherwise they wait.
  bool begin(bool is_open);
  // Reads go on, or all accesses; in both cases some may have gone on before.
  bool open_as(size_t offset, size_t bytes, bool writable);
  // Reads go on already.
  bool let_write(size_t offset, size_t bytes);
  // After fail().
  void revive();
  // Accesses fault for good.
  void end();

 private:
  bool protect(size_t offset, size_t bytes, int protection) const;

  const UserFaults* const faults_;
  const uint64_t address_;
  std::byte* const local_;
  const size_t bytes_;
  bool is_watched_ = false;
};

}  // namespace fargpu::client
