#include "client/managed/page_access.h"

#include <sys/mman.h>

#include <set>

#include "client/memory/user_faults.h"

namespace fargpu::client {
namespace {

using Pages = PageAccess::Pages;

bool protect(const Pages& pages, int protection) {
  return ::mprotect(reinterpret_cast<void*>(pages.address), pages.bytes, protection) == 0;
}

class ByProtection final : public PageAccess {
 public:
  bool by_signals() const override { return true; }
  // The system limits the mappings of a process, and each protection needs one.
  uint64_t most_blocks() const override { return 4096; }
  bool begin(const Pages& all, bool is_open) override { return !is_open || open(all, true); }
  bool close(const Pages& pages) override { return protect(pages, PROT_NONE); }
  bool open(const Pages& pages, bool writable) override {
    return protect(pages, writable ? PROT_READ | PROT_WRITE : PROT_READ);
  }
  bool let_write(const Pages& pages) override { return open(pages, true); }
  // The handler says so.
  void fail(const Pages&) override {}
  void revive(const Pages&) override {}
  void end(const Pages& all) override { (void)close(all); }
};

// Pages that wait are not mapped; their contents are in the file. The protection only says whether
// there is an allocation.
class ByMessages final : public PageAccess {
 public:
  explicit ByMessages(const UserFaults& faults) : faults_(faults) {}
  bool by_signals() const override { return false; }
  uint64_t most_blocks() const override { return 65536; }
  bool begin(const Pages& all, bool open) override {
    // New memory causes no faults until it is closed.
    const bool begun = open || watch(all);
    if (!begun || !protect(all, PROT_READ | PROT_WRITE)) return false;
    if (open) unwatched_.insert(all.address);
    return true;
  }
  bool close(const Pages& pages) override {
    if (unwatched_.count(pages.address) != 0) {
      if (!watch(pages)) return false;
      unwatched_.erase(pages.address);
    }
    UserFaults::close(pages.address, pages.bytes);
    return true;
  }
  bool open(const Pages& pages, bool writable) override {
    return faults_.open(pages.address, pages.bytes, writable, pages.local);
  }
  bool let_write(const Pages& pages) override {
    // Otherwise each page would fault once more, in the system.
    UserFaults::close(pages.address, pages.bytes);
    return open(pages, true);
  }
  void fail(const Pages& pages) override {
    (void)protect(pages, PROT_NONE);
    faults_.retry(pages.address, pages.bytes);
  }
  void revive(const Pages& all) override { (void)protect(all, PROT_READ | PROT_WRITE); }
  void end(const Pages& all) override {
    (void)protect(all, PROT_NONE);
    UserFaults::close(all.address, all.bytes);
    faults_.unwatch(all.address, all.bytes);
    unwatched_.erase(all.address);
  }

 private:
  bool watch(const Pages& all) { return faults_.watch(all.address, all.bytes); }

  const UserFaults& faults_;
  std::set<uint64_t> unwatched_;  // allocations that began open and were not closed yet
};

}  // namespace

std::unique_ptr<PageAccess> access_by_protection() { return std::make_unique<ByProtection>(); }

std::unique_ptr<PageAccess> access_by_messages(const UserFaults& faults) {
  return std::make_unique<ByMessages>(faults);
}

}  // namespace fargpu::client
