#include "common/base/fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace fargpu {

void Fd::reset(int descriptor) {
  // No retry on EINTR: Linux has released the number even then.
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = descriptor;
}

Result<EventFd> EventFd::create() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return system_error("cannot create an eventfd", errno);
  return EventFd(std::move(fd));
}

void EventFd::signal() const {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable anyway.
  [[maybe_unused]] ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

bool EventFd::drain() const {
  uint64_t count = 0;
  return ::read(fd_.get(), &count, sizeof count) == sizeof count;
}

}  // namespace fargpu
