#include "server/job/image_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

namespace fargpu::server {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr mode_t kReadOnly = 0400, kWritable = 0600;

// O_TMPFILE, or where the file system does not know it a name that goes at once.
Result<Fd> nameless_file(const std::string& folder) {
  Fd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kReadOnly));
  if (file.valid()) return file;
  if (errno == EOPNOTSUPP || errno == EISDIR) {
    std::string path = folder + "/fargpu-image-XXXXXX";
    file.reset(::mkostemp(path.data(), O_CLOEXEC));
    if (file.valid() && ::unlink(path.c_str()) == 0 && ::fchmod(file.get(), kReadOnly) == 0)
      return file;
  }
  return system_error("cannot make a file in " + folder, errno);
}

// Another opening of the same file.
Fd opened_again(const Fd& file, int flags) {
  return Fd(::open(fmt::format("/proc/self/fd/{}", file.get()).c_str(), flags | O_CLOEXEC));
}

Status write_all(int file, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(file, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error("cannot write an image", errno);
    data = data.subspan(static_cast<size_t>(written));
  }
  return Status();
}

// Reads until `data` is full.
Status read_all(int file, std::span<std::byte> data, uint64_t offset) {
  while (!data.empty()) {
    const ssize_t got = ::pread(file, data.data(), data.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return system_error("cannot read an image", got < 0 ? errno : EIO);
    data = data.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return Status();
}

}  // namespace

uint64_t disk_bytes_of(uint64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock + kBlock; }

Status try_image_files(const std::string& folder) {
  FARGPU_ASSIGN_OR_RETURN(const Fd file, nameless_file(folder));
  return opened_again(file, O_RDONLY).valid() ? Status()
                                              : system_error("cannot use /proc/self/fd", errno);
}

Result<Fd> copy_to_file(const std::string& folder, int memory, uint64_t bytes,
                        const Sha256Digest& expected, const std::atomic<bool>& ending) {
  constexpr size_t kPiece = 1 << 20;
  FARGPU_ASSIGN_OR_RETURN(const Fd file, nameless_file(folder));
  // A disk that is too full says so now, where it can.
  if (::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0 && errno == ENOSPC)
    return system_error("no room for an image", errno);
  Sha256 hash;
  std::vector<std::byte> piece(std::min<uint64_t>(kPiece, bytes));
  for (uint64_t done = 0; done < bytes; done += piece.size()) {
    if (ending) return Status(StatusCode::kLost, "the daemon ends");
    piece.resize(std::min<uint64_t>(piece.size(), bytes - done));
    FARGPU_RETURN_IF_ERROR(read_all(memory, piece, done));
    hash.update(piece);
    FARGPU_RETURN_IF_ERROR(write_all(file.get(), piece));
  }
  if (const Sha256Digest real = hash.finish(); real != expected) {
    return Status(StatusCode::kProtocol,
                  fmt::format("image {} has the hash {}", to_hex(expected), to_hex(real)));
  }
  Fd reading = opened_again(file, O_RDONLY);
  if (!reading.valid()) return system_error("cannot open an image again", errno);
  return reading;
}

void empty_file(const Fd& file) {
  if (::fchmod(file.get(), kWritable) != 0) return;
  const Fd writing = opened_again(file, O_WRONLY);
  if (writing.valid()) (void)!::ftruncate(writing.get(), 0);
}

}  // namespace fargpu::server
