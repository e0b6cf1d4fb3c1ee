// PageAccess: which accesses of the application to managed memory go on, and which wait for a
// fault to be served. By the protection of pages, where faults are signals (fault_handler.h), or by
// userfaultfd, where they are messages to a thread.
//
// Calls for one allocation do not overlap; accesses may come at any time. `false`: the system has
// refused, and more may wait than should.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fargpu::client {

class UserFaults;

class PageAccess {
 public:
  // Whole pages, and where fargpu itself has them.
  struct Pages {
    uint64_t address = 0;
    std::byte* local = nullptr;
    uint64_t bytes = 0;
  };

  virtual ~PageAccess() = default;
  // Whether accesses that wait are reported by a handler of SIGSEGV.
  virtual bool by_signals() const = 0;
  // Blocks of an allocation whose accesses may differ.
  virtual uint64_t most_blocks() const = 0;
  // A new allocation, whose pages are inaccessible. `open`: all accesses go on. Otherwise they
  // wait.
  virtual bool begin(const Pages& all, bool open) = 0;
  // From now on every access waits. The first time for all pages of an allocation that began open.
  virtual bool close(const Pages& pages) = 0;
  // Reads go on, or all accesses. Some may have gone on before.
  virtual bool open(const Pages& pages, bool writable) = 0;
  // Reads go on already.
  virtual bool let_write(const Pages& pages) = 0;
  // Waiting and later accesses fail, until revive() for all pages.
  virtual void fail(const Pages& pages) = 0;
  virtual void revive(const Pages& all) = 0;
  // Accesses fault for good.
  virtual void end(const Pages& all) = 0;
};

std::unique_ptr<PageAccess> access_by_protection();
// `faults` with kWrites, started; it outlives this.
std::unique_ptr<PageAccess> access_by_messages(const UserFaults& faults);

}  // namespace fargpu::client
