// While it lives, errno may change; restores errno afterwards.
#pragma once

#include <cerrno>

namespace fargpu {

class KeepErrno {
 public:
  KeepErrno() : before_(errno) {}
  ~KeepErrno() { errno = before_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int before_;
};

}  // namespace fargpu
