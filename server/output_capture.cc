#include "server/output_capture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace fargpu::server {

Result<OutputCapture> OutputCapture::install() {
  Fd file(::memfd_create("fargpu-output", MFD_CLOEXEC));
  // Appending, so that writers do not depend on a position that somebody else moves.
  if (!file.valid() || ::fcntl(file.get(), F_SETFL, O_APPEND) != 0)
    return system_error("memfd_create", errno);
  std::fflush(stdout);
  if (::dup2(file.get(), STDOUT_FILENO) < 0) return system_error("cannot replace stdout", errno);
  return OutputCapture(std::move(file));
}

std::vector<std::byte> OutputCapture::take(size_t limit) {
  if (!file_.valid()) return {};
  std::fflush(stdout);
  struct stat about {};
  if (::fstat(file_.get(), &about) != 0) return {};
  const uint64_t end = static_cast<uint64_t>(about.st_size);
  if (end <= taken_) return {};
  std::vector<std::byte> bytes(std::min<uint64_t>(end - taken_, limit));
  const ssize_t got = ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(taken_));
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  taken_ += bytes.size();
  // The pages that were taken go back; cutting the file instead could lose what is being written
  // meanwhile.
  constexpr uint64_t kPage = 4096;
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              static_cast<off_t>(taken_ / kPage * kPage));
  return bytes;
}

}  // namespace fargpu::server
