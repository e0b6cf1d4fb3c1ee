// UnchangedFile: tells that memory which shows a file has the contents that somebody has read,
// without another look at them.
//
// The memory is mapped from the file for reading alone and shared, so only a writer of the file can
// change it. Nobody has the file open for writing, nor a mapping of such a descriptor, at a moment
// at which the system grants a lease of it for reading. Whoever opens it later, writes and closes
// it again leaves another time of change. That holds for the file systems ext2 to ext4 and XFS;
// others may have writers on other hosts, or no times for writes by mappings. A lease takes the
// file's owner, or CAP_LEASE.
//
// It is held for some microseconds; whoever opens the file for writing meanwhile waits for its end.
// One thread at a time.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <utility>

#include "common/base/fd.h"

namespace fargpu {

class UnchangedFile {
 public:
  // Of the file that these pages show; nullptr: they show no single one, or nobody can tell.
  static std::unique_ptr<UnchangedFile> of(uint64_t begin, uint64_t end);

  // True: the memory is as at the last look. False: it is looked at now, and was_seen() says that
  // all of it was read.
  bool is_as_seen();
  void was_seen() { seen_ = look_; }

 private:
  explicit UnchangedFile(Fd file) : file_(std::move(file)) {}
  struct State {
    bool is_known = false;  // a later change would have another time
    struct timespec changed {};
  };
  State state() const;

  Fd file_;
  State look_, seen_;
};

}  // namespace fargpu
