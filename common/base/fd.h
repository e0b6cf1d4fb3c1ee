// Owning file descriptors, and an eventfd that wakes a poll.
//
// Fd closes its descriptor once. Moves, does not copy. EventFd::signal() may be called from any
// thread (and from a signal handler); drain() by the thread that polls.
#pragma once

#include <utility>

#include "common/base/status.h"

namespace fargpu {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int descriptor) : descriptor_(descriptor) {}
  Fd(Fd&& other) noexcept : descriptor_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  // Gives the descriptor away; the caller closes it.
  int release() { return std::exchange(descriptor_, -1); }
  void reset(int descriptor = -1);

 private:
  int descriptor_ = -1;
};

class EventFd {
 public:
  static Result<EventFd> create();

  int get() const { return fd_.get(); }
  // Makes get() poll readable until drained.
  void signal() const;
  // True when it had been signalled.
  bool drain() const;
  void reset() { fd_.reset(); }

 private:
  explicit EventFd(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace fargpu
