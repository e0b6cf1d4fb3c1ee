#include "client/memory/user_faults.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/descriptors.h"
#include "common/host/memory_page.h"

namespace fargpu::client {
namespace {

// How often a thread asks for accesses that cannot poll any more.
constexpr auto kLookAtClosed = std::chrono::milliseconds(5);

// Older headers lack these.
constexpr uint64_t kProtectsFiles = uint64_t{1} << 12;    // UFFD_FEATURE_WP_HUGETLBFS_SHMEM
constexpr uint64_t kReadOnly = uint64_t{1} << 1;          // UFFDIO_CONTINUE_MODE_WP
constexpr uint64_t kProtectsMissing = uint64_t{1} << 13;  // UFFD_FEATURE_WP_UNPOPULATED

constexpr uint64_t kCanMove = uint64_t{1} << 16;  // UFFD_FEATURE_MOVE
struct Move {
  uint64_t to, from, bytes, mode;
  int64_t moved;
};
constexpr unsigned long kMove = _IOWR(UFFDIO, 0x05, Move);  // UFFDIO_MOVE
constexpr uint64_t kAllowHoles = uint64_t{1} << 1;          // UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES

uint64_t features_of(UserFaults::Mode mode) {
  switch (mode) {
    case UserFaults::Mode::kAccesses:
      return UFFD_FEATURE_MINOR_SHMEM;
    case UserFaults::Mode::kWrites:
      return UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_PAGEFAULT_FLAG_WP | kProtectsFiles;
    case UserFaults::Mode::kMoves:
      return kCanMove | UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_REMAP |
             UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;
    case UserFaults::Mode::kKeeps:
      return kCanMove | UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    case UserFaults::Mode::kSnapshots:
      return UFFD_FEATURE_PAGEFAULT_FLAG_WP | kProtectsFiles | kProtectsMissing;
  }
  return 0;
}

struct uffdio_register registration(uint64_t address, uint64_t bytes, UserFaults::Mode mode) {
  struct uffdio_register range = {};
  range.range = {address, bytes};
  const bool is_file = mode == UserFaults::Mode::kAccesses || mode == UserFaults::Mode::kWrites;
  if (is_file) range.mode |= UFFDIO_REGISTER_MODE_MINOR;
  if (mode != UserFaults::Mode::kAccesses) range.mode |= UFFDIO_REGISTER_MODE_WP;
  if (mode == UserFaults::Mode::kWrites || mode == UserFaults::Mode::kMoves)
    range.mode |= UFFDIO_REGISTER_MODE_MISSING;
  return range;
}

// Whether pages can be opened for reading alone is no feature that can be asked for.
Status try_read_only(int faults) {
  void* const page =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return system_error("mmap", errno);
  const auto address = reinterpret_cast<uint64_t>(page);
  Status status;
  struct uffdio_register range = registration(address, kPageBytes, UserFaults::Mode::kWrites);
  if (::ioctl(faults, UFFDIO_REGISTER, &range) != 0)
    status = system_error("userfaultfd of writes to memory files", errno);
  struct uffdio_continue pages = {};
  pages.range = {address, kPageBytes};
  pages.mode = kReadOnly;
  // The page has no memory: EFAULT.
  if (status.ok() && ::ioctl(faults, UFFDIO_CONTINUE, &pages) != 0 && errno == EINVAL)
    status = system_error("userfaultfd of writes (Linux 6.4)", errno);
  ::munmap(page, kPageBytes);
  return status;
}

}  // namespace

Result<Fd> UserFaults::open_descriptor(Mode mode) {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  Fd made;
  // A process that may open the device may serve faults of system calls. The system call of the
  // same name requires a privilege for that.
  const descriptors::StandardTaken taken;
  const Fd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
#ifdef USERFAULTFD_IOC_NEW
  if (device.valid()) made = Fd(::ioctl(device.get(), USERFAULTFD_IOC_NEW, kFlags));
#endif
  if (!made.valid()) made = Fd(static_cast<int>(::syscall(SYS_userfaultfd, kFlags)));
  made = descriptors::place(std::move(made));
  if (!made.valid()) return system_error("userfaultfd", errno);
  struct uffdio_api wanted = {};
  wanted.api = UFFD_API;
  wanted.features = features_of(mode);
  if (::ioctl(made.get(), UFFDIO_API, &wanted) != 0) {
    const bool moves = mode == Mode::kMoves || mode == Mode::kKeeps;
    return system_error(moves ? "userfaultfd that moves pages" : "userfaultfd of memory files",
                        errno);
  }
  if (mode == Mode::kWrites) FARGPU_RETURN_IF_ERROR(try_read_only(made.get()));
  return made;
}

Status UserFaults::probe(Mode mode) { return open_descriptor(mode).status(); }

bool UserFaults::open() {
  std::lock_guard lock(mutex_);
  if (is_open_) return true;
  auto descriptor = open_descriptor(mode_);
  auto wake = EventFd::create();
  if (!descriptor.ok() || !wake.ok()) return false;
  // Without it, memory whose descriptor the program closes would be read as it is in its file.
  if (descriptors::is_foreign_process() && !kept_.start(descriptor->get())) return false;
  faults_ = std::move(*descriptor);
  wake_ = std::move(*wake);
  is_open_ = true;
  return true;
}

void UserFaults::wake() {
  if (wake_) wake_->signal();
}

bool UserFaults::is_closed() const { return descriptors::own(faults_.get()) < 0; }

int UserFaults::control(unsigned long request, void* argument) const {
  const int number = faults_.get();
  // EBADF: closed since it was asked for.
  if (!is_closed()) {
    const int result = ::ioctl(number, request, argument);
    if (result == 0 || errno != EBADF) return result;
  }
  const long result =
      kept_.run([&] { return ::ioctl(number, request, argument) == 0 ? 0 : -long{errno}; });
  if (result == 0) return 0;
  errno = static_cast<int>(-result);
  return -1;
}

ssize_t UserFaults::read(void* bytes, size_t most) const {
  const int number = faults_.get();
  if (!is_closed()) return ::read(number, bytes, most);
  return kept_.run([&] { return ::read(number, bytes, most); });
}

void UserFaults::wait(std::optional<Clock::time_point> until) {
  std::array<struct pollfd, 2> waits = {{{faults_.get(), POLLIN, 0}, {wake_->get(), POLLIN, 0}}};
  int patience = -1;
  if (until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
    patience = static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
  }
  // A poll that has begun keeps what it polls, whatever the program closes.
  if (is_closed()) {
    std::this_thread::sleep_for(kLookAtClosed);
  } else if (::poll(waits.data(), waits.size(), patience) < 0) {
    return;
  }
  (void)wake_->drain();
}

std::span<const UserFaults::Access> UserFaults::take(Accesses& found) {
  std::array<struct uffd_msg, kMostAccesses> messages;
  const ssize_t got = read(messages.data(), sizeof messages);
  if (got <= 0) return {};
  size_t count = 0;
  for (size_t i = 0; i < static_cast<size_t>(got) / sizeof(messages[0]); ++i) {
    const auto& arg = messages[i].arg;
    switch (messages[i].event) {
      case UFFD_EVENT_PAGEFAULT:
        found[count++] = {arg.pagefault.address,
                          (arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0};
        break;
      case UFFD_EVENT_REMAP:
        found[count++] = {arg.remap.from, false, Access::What::kMoved,
                          arg.remap.from + arg.remap.len, arg.remap.to};
        break;
      case UFFD_EVENT_REMOVE:
      case UFFD_EVENT_UNMAP:
        found[count++] = {arg.remove.start, false,
                          messages[i].event == UFFD_EVENT_UNMAP ? Access::What::kUnmapped
                                                                : Access::What::kEmptied,
                          arg.remove.end};
        break;
      default:
        break;
    }
  }
  return std::span(found).first(count);
}

bool UserFaults::watch(uint64_t address, size_t bytes) const {
  struct uffdio_register range = registration(address, page_from(bytes), mode_);
  return control(UFFDIO_REGISTER, &range) == 0;
}

void UserFaults::unwatch(uint64_t address, size_t bytes) const {
  struct uffdio_range range = {address, page_from(bytes)};
  (void)control(UFFDIO_UNREGISTER, &range);
  retry(address, bytes);
}

void UserFaults::close(uint64_t address, size_t bytes) {
  // The memory stays in its file; the next access to each page faults.
  auto* const pages = reinterpret_cast<void*>(address);
  // ENOMEM: the application has unmapped some of it; the rest is closed.
  if (::madvise(pages, page_from(bytes), MADV_DONTNEED) == 0 || errno == ENOMEM) return;
  // The application may have locked it (mlockall).
  ::munlock(pages, page_from(bytes));
  // What stays accessible would be read when it is old.
  FARGPU_CHECK(::madvise(pages, page_from(bytes), MADV_DONTNEED) == 0);
}

bool UserFaults::open(uint64_t address, size_t bytes, bool writable, std::byte* local) const {
  const uint64_t end = address + page_from(bytes);
  bool was_open = false, is_populated = false;
  for (uint64_t at = address; at < end;) {
    struct uffdio_continue pages = {};
    pages.range = {at, end - at};
    pages.mode = writable ? 0 : kReadOnly;
    if (control(UFFDIO_CONTINUE, &pages) == 0) break;
    if (pages.mapped > 0) {
      at += static_cast<uint64_t>(pages.mapped);
    } else if (errno == EEXIST) {
      was_open = true;
      at += kPageBytes;
    } else if (errno == EFAULT && !std::exchange(is_populated, true)) {
      if (::madvise(local + (at - address), end - at, MADV_POPULATE_WRITE) != 0) return false;
    } else if (errno != EAGAIN) {
      const int error = errno;
      retry(address, bytes);
      return error == ENOENT;  // it is not watched any more
    }
  }
  // Threads that wait for pages which were open already have not been woken yet.
  if (was_open && writable && mode_ == Mode::kWrites) return let_write(address, bytes);
  if (was_open) retry(address, bytes);
  return true;
}

bool UserFaults::let_write(uint64_t address, size_t bytes) const {
  struct uffdio_writeprotect range = {};
  range.range = {address, page_from(bytes)};
  return control(UFFDIO_WRITEPROTECT, &range) == 0;
}

void UserFaults::retry(uint64_t address, size_t bytes) const {
  struct uffdio_range range = {address, page_from(bytes)};
  (void)control(UFFDIO_WAKE, &range);
}

size_t UserFaults::move(uint64_t to, uint64_t from, size_t bytes, int* error) const {
  size_t done = 0;
  while (done < bytes) {
    Move pages = {to + done, from + done, bytes - done,
                  mode_ == Mode::kKeeps ? kAllowHoles : uint64_t{0}, 0};
    if (control(kMove, &pages) == 0) return bytes;
    if (pages.moved > 0) {
      done += static_cast<size_t>(pages.moved);
    } else {
      *error = errno;
      return done;
    }
  }
  return done;
}

int UserFaults::copy_page(uint64_t to, uint64_t from) const {
  struct uffdio_copy page = {};
  page.dst = to;
  page.src = from;
  page.len = kPageBytes;
  return control(UFFDIO_COPY, &page);
}

int UserFaults::zero_page(uint64_t address) const {
  struct uffdio_zeropage page = {};
  page.range = {address, kPageBytes};
  return control(UFFDIO_ZEROPAGE, &page);
}

bool UserFaults::is_watched(uint64_t page) const {
  struct uffdio_writeprotect nothing = {};
  nothing.range = {page, kPageBytes};
  nothing.mode = UFFDIO_WRITEPROTECT_MODE_DONTWAKE;
  int result = control(UFFDIO_WRITEPROTECT, &nothing);
  for (int i = 0; result != 0 && errno == EAGAIN && i < 100; ++i) {
    std::this_thread::yield();
    result = control(UFFDIO_WRITEPROTECT, &nothing);
  }
  return result == 0;
}

}  // namespace fargpu::client
