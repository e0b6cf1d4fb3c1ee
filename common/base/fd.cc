#include "common/base/fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "common/base/descriptors.h"

namespace fargpu {

void Fd::reset(int descriptor) {
  // No retry on EINTR: Linux has released the number even then.
  if (const int number = descriptors::disown(descriptor_); number >= 0) ::close(number);
  descriptor_ = descriptor;
}

Result<EventFd> EventFd::create() {
  Fd fd = descriptors::make([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!fd.valid()) return system_error("cannot create an eventfd", errno);
  return EventFd(std::move(fd));
}

void EventFd::signal() const {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable anyway, or when the program has
  // closed it.
  [[maybe_unused]] ssize_t written = ::write(descriptors::own(fd_.get()), &one, sizeof one);
}

bool EventFd::drain() const {
  uint64_t count = 0;
  return ::read(descriptors::own(fd_.get()), &count, sizeof count) == sizeof count;
}

}  // namespace fargpu
