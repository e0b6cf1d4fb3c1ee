#include "sim/memory/file_contents.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace fargpu::sim {
namespace {

// All of it, with ::pread or ::pwrite.
template <typename Transfer, typename Byte>
bool transfer_all(Transfer&& transfer, int descriptor, Byte* bytes, size_t count, off_t offset) {
  while (count > 0) {
    const ssize_t done = transfer(descriptor, bytes, count, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes += done;
    count -= static_cast<size_t>(done);
    offset += done;
  }
  return true;
}

}  // namespace

bool FileContents::take_out(int descriptor) {
  std::vector<Piece> pieces;
  off_t end = 0;
  for (;;) {
    const off_t begin = ::lseek(descriptor, end, SEEK_DATA);
    if (begin < 0 && errno == ENXIO) break;  // nothing behind
    if (begin < 0) return false;
    end = ::lseek(descriptor, begin, SEEK_HOLE);
    if (end < 0) return false;
    std::vector<std::byte> bytes(static_cast<size_t>(end - begin));
    if (!transfer_all(::pread, descriptor, bytes.data(), bytes.size(), begin)) return false;
    pieces.push_back({begin, std::move(bytes)});
  }
  pieces_ = std::move(pieces);
  for (const Piece& piece : pieces_)
    (void)::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, piece.offset,
                      static_cast<off_t>(piece.bytes.size()));
  return true;
}

bool FileContents::put_back(int descriptor) const {
  for (const Piece& piece : pieces_)
    if (!transfer_all(::pwrite, descriptor, piece.bytes.data(), piece.bytes.size(), piece.offset))
      return false;
  return true;
}

}  // namespace fargpu::sim
