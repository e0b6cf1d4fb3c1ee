// Makes frames out of a stream of bytes that arrives in pieces of any size.
//
// The owner asks for memory for the next bytes (writable), fills it, and says how many bytes there
// were (advance). Every frame that is complete is then delivered to the handler. Bulk bytes go
// straight into the memory that the handler gives; headers and bodies go into one aligned buffer.
// Bodies are 8-byte aligned when delivered. No descriptor, no waiting, one thread.
//
// With several connections, frames come on the first one and the shares of large bulk on all of
// them (bulk_shares.h); a frame goes to the handler when all of its shares are there.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "common/transport/bulk_shares.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

class FrameAssembler {
 public:
  explicit FrameAssembler(const wire::FrameLimits& limits, size_t connections = 1);

  using Writable = std::array<std::span<std::byte>, 2>;
  // Up to two pieces, to be filled in this order; never empty altogether. Not to be called while
  // the first connection must wait (must_wait).
  Writable writable();
  // The first `bytes` of writable() have been filled. Returns how many frames went to the handler;
  // a Status that is not ok (broken frame, or the handler's) ends the stream.
  Result<size_t> advance(size_t bytes, FrameHandler& handler);
  // Shares are still arriving on other connections: the first one must not be read meanwhile.
  bool must_wait() const { return in_bulk_ && done_[0] == shares_[0].size(); }
  // Where the next bytes of connection `index` (not 0) go, empty when none are expected yet; the
  // first `bytes` of it have been filled, as in advance().
  std::span<std::byte> share_room(size_t index) const {
    return in_bulk_ ? shares_[index].subspan(done_[index]) : std::span<std::byte>();
  }
  Result<size_t> advance_share(size_t index, size_t bytes, FrameHandler& handler);
  // A frame's bulk is not complete.
  bool in_bulk() const { return in_bulk_; }
  // True between frames, false when part of one has arrived.
  bool at_boundary() const { return !in_bulk_ && begin_ == end_; }

 private:
  struct FreeBytes {
    void operator()(std::byte* bytes) const;
  };

  // After the last byte of the bulk: delivers the frame and continues. Returns how many frames.
  Result<size_t> after_bulk(FrameHandler& handler);
  Result<size_t> parse(FrameHandler& handler);
  void begin_bulk(std::span<std::byte> bulk);
  // One step of parsing: true when a frame was delivered, false when more bytes are needed.
  Result<bool> parse_one(FrameHandler& handler);
  // The rest of the bulk, after header and body.
  Result<bool> take_bulk(FrameHandler& handler);
  std::span<const std::byte> aligned_body(const std::byte* body, size_t bytes);
  bool body_in_buffer() const {
    return body_.data() >= buffer_.get() && body_.data() < buffer_.get() + capacity_;
  }
  // All of the memory in which the body lies.
  std::span<const std::byte> around_body() const;
  Status deliver(FrameHandler& handler, std::span<std::byte> bulk);
  void make_room();

  const wire::FrameLimits limits_;
  const size_t connections_;
  const size_t capacity_;
  std::unique_ptr<std::byte[], FreeBytes> buffer_;
  std::unique_ptr<std::byte[], FreeBytes>
      scratch_;       // for bodies that arrived unaligned; made on first use
  size_t begin_ = 0;  // unparsed bytes: [begin_, end_)
  size_t end_ = 0;

  // A frame whose body has arrived and whose bulk is on its way. Its body lies before begin_, or in
  // scratch_.
  bool in_bulk_ = false;
  wire::FrameHeader header_;
  std::span<const std::byte> body_;
  std::span<std::byte> bulk_;
  std::array<std::span<std::byte>, kMaxConnections> shares_;
  std::array<size_t, kMaxConnections> done_{};
  uint64_t missing_ = 0;  // bytes of all shares together
};

}  // namespace fargpu::transport
