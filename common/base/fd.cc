#include "common/base/fd.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace fargpu {
namespace {

constexpr int kApart = 512;  // few programs have so many files, and most may have more

}  // namespace

void Fd::reset(int descriptor) {
  // No retry on EINTR: Linux has released the number even then.
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = descriptor;
}

Result<EventFd> EventFd::create() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return system_error("cannot create an eventfd", errno);
  // A program may close descriptors that it does not know, and open files, which get the lowest
  // numbers that are free. Signalling one of those would write into it.
  Fd apart(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kApart));
  return EventFd(apart.valid() ? std::move(apart) : std::move(fd));
}

void EventFd::signal() const {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable anyway, or when the program has
  // closed it.
  [[maybe_unused]] ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

bool EventFd::drain() const {
  uint64_t count = 0;
  return ::read(fd_.get(), &count, sizeof count) == sizeof count;
}

}  // namespace fargpu
