// How the bulk bytes of a frame are spread over the connections of a session. Pure: both ends
// compute the shares from the frame's header, so they are neither sent nor checked.
//
// Connection 0 carries all frames. Large bulk is cut into one share for each connection, in order:
// share 0 follows the body as usual; share k is the next thing that connection k carries. Smaller
// bulk follows its body as a whole.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/host/memory_page.h"

namespace fargpu::transport {

inline constexpr size_t kMaxConnections = 16;
// bulk below is not worth further system calls
inline constexpr uint64_t kLeastSharedBytes = 256 << 10;

struct Share {
  uint64_t offset = 0, bytes = 0;
};

// Some shares of bulk that is hardly large enough may be empty.
inline Share share_of(uint64_t bulk_bytes, size_t connections, size_t index) {
  if (connections == 1 || bulk_bytes < kLeastSharedBytes) {
    return index == 0 ? Share{0, bulk_bytes} : Share{bulk_bytes, 0};
  }
  const uint64_t even = (bulk_bytes + connections - 1) / connections;
  const uint64_t bytes = page_from(even);
  const uint64_t offset = std::min(bytes * index, bulk_bytes);
  return {offset, std::min(bytes, bulk_bytes - offset)};
}

// A share of bulk in several pieces of memory, with the part that has been sent.
class ShareCursor {
 public:
  ShareCursor() = default;
  ShareCursor(std::span<const std::span<const std::byte>> pieces, Share share)
      : pieces_(pieces), left_(share.bytes) {
    skip(share.offset);
  }
  uint64_t left() const { return left_; }
  // Fills at most `room` entries with the next pieces to send; how many.
  size_t gather(iovec* entries, size_t room) const {
    size_t count = 0, skip = offset_;
    uint64_t left = left_;
    for (size_t i = 0; left > 0 && count < room; ++i, skip = 0) {
      const uint64_t bytes = std::min<uint64_t>(pieces_[i].size() - skip, left);
      if (bytes == 0) continue;
      entries[count++] = iovec{const_cast<std::byte*>(pieces_[i].data()) + skip, bytes};
      left -= bytes;
    }
    return count;
  }
  // At most left().
  void consume(uint64_t bytes) {
    left_ -= bytes;
    skip(bytes);
  }

 private:
  void skip(uint64_t bytes) {
    while (bytes > 0) {
      const uint64_t take = std::min<uint64_t>(pieces_[0].size() - offset_, bytes);
      offset_ += take;
      bytes -= take;
      if (offset_ == pieces_[0].size()) {
        pieces_ = pieces_.subspan(1);
        offset_ = 0;
      }
    }
  }

  std::span<const std::span<const std::byte>> pieces_;
  size_t offset_ = 0;  // in pieces_[0]
  uint64_t left_ = 0;
};

}  // namespace fargpu::transport
