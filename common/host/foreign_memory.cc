#include "common/host/foreign_memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/base/descriptors.h"
#include "common/base/fd.h"
#include "common/base/keep_errno.h"
#include "common/host/mapped_memory.h"
#include "common/host/memory_page.h"

namespace fargpu {
namespace {

// Past the protection of pages. How many bytes; negative: there is no way to tell.
ssize_t read_protected(uint64_t address, void* to, size_t bytes) {
  const Fd memory = descriptors::open_file("/proc/self/mem", O_RDONLY);
  if (!memory.valid()) return -1;
  const ssize_t done = ::pread(memory.get(), to, bytes, static_cast<off_t>(address));
  return std::max<ssize_t>(done, 0);
}
ssize_t write_protected(uint64_t address, const void* from, size_t bytes) {
  const Fd memory = descriptors::open_file("/proc/self/mem", O_WRONLY);
  if (!memory.valid()) return -1;
  const ssize_t done = ::pwrite(memory.get(), from, bytes, static_cast<off_t>(address));
  return std::max<ssize_t>(done, 0);
}

// A filter of system calls (old container runtimes) may refuse copies by the system. Then what is
// accessible is copied here; a page that ends in between ends the process.
bool is_refused(int error) { return error == ENOSYS || error == EPERM || error == EACCES; }

// `copy(address, offset, bytes)` by the system; `here` without it; `past` the protection.
template <typename Copy, typename Here, typename Past>
CopiedPart in_steps(uint64_t address, size_t bytes, MemoryUse use, const Copy& copy,
                    const Here& here, const Past& past) {
  const KeepErrno keep;
  size_t done = 0;
  while (done < bytes) {
    const uint64_t at = address + done;
    const ssize_t copied = copy(at, done, bytes - done);
    if (copied > 0) {
      done += static_cast<size_t>(copied);
      continue;
    }
    const size_t page = std::min<size_t>(bytes - done, kPageBytes - at % kPageBytes);
    if (copied < 0 && is_refused(errno) && is_accessible(at, page, use)) {
      here(at, done, page);
      done += page;
      continue;
    }
    const ssize_t forced = past(at, done, bytes - done);
    if (forced <= 0) return {done, forced == 0 || end_of_hole(at) != 0};
    done += static_cast<size_t>(forced);
  }
  return {done, false};
}

}  // namespace

CopiedPart read_foreign(uint64_t address, std::span<std::byte> to) {
  return in_steps(
      address, to.size(), MemoryUse::kRead,
      [&](uint64_t at, size_t offset, size_t bytes) {
        const struct iovec local = {to.data() + offset, bytes}, remote = {as_pointer(at), bytes};
        return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
      },
      [&](uint64_t at, size_t offset, size_t bytes) {
        std::memcpy(to.data() + offset, as_pointer(at), bytes);
      },
      [&](uint64_t at, size_t offset, size_t bytes) {
        return read_protected(at, to.data() + offset, bytes);
      });
}

CopiedPart write_foreign(uint64_t address, std::span<const std::byte> from) {
  return in_steps(
      address, from.size(), MemoryUse::kWrite,
      [&](uint64_t at, size_t offset, size_t bytes) {
        const struct iovec local = {const_cast<std::byte*>(from.data() + offset), bytes},
                           remote = {as_pointer(at), bytes};
        return ::process_vm_writev(::getpid(), &local, 1, &remote, 1, 0);
      },
      [&](uint64_t at, size_t offset, size_t bytes) {
        std::memcpy(as_pointer(at), from.data() + offset, bytes);
      },
      [&](uint64_t at, size_t offset, size_t bytes) {
        return write_protected(at, from.data() + offset, bytes);
      });
}

// The system looks a place up for each piece of the other side, which costs ten times as much as a
// piece of this side. So the pieces are this side: their bytes, packed, are read into their places.
void write_foreign_pieces(std::span<const ForeignPiece> pieces) {
  constexpr size_t kAtOnce = 256, kPacked = 4096;  // the stack of a program's thread may be small
  const KeepErrno keep;
  std::array<struct iovec, kAtOnce> places;
  std::array<std::byte, kPacked> packed;
  while (!pieces.empty()) {
    size_t count = 0, bytes = 0;
    for (; count < std::min(pieces.size(), kAtOnce); ++count) {
      const auto [address, from] = pieces[count];
      if (from.size() > kPacked - bytes) break;
      std::copy(from.begin(), from.end(), packed.begin() + static_cast<ptrdiff_t>(bytes));
      places[count] = {as_pointer(address), from.size()};
      bytes += from.size();
    }
    const struct iovec from = {packed.data(), bytes};
    const ssize_t copied =
        count == 0 ? 0 : ::process_vm_readv(::getpid(), places.data(), count, &from, 1, 0);
    auto done = static_cast<size_t>(std::max<ssize_t>(copied, 0));
    // The rest past protection, or a large piece.
    for (const ForeignPiece& piece : pieces.first(std::max<size_t>(count, 1))) {
      if (done < piece.bytes.size())
        (void)write_foreign(piece.address + done, piece.bytes.subspan(done));
      done -= std::min(done, piece.bytes.size());
    }
    pieces = pieces.subspan(std::max<size_t>(count, 1));
  }
}

}  // namespace fargpu
