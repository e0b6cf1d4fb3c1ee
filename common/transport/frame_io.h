// Single frames on a plain socket, before it belongs to a transport: the daemon reads the hello,
// sends a refusal, or hands the socket to a worker. Exactly the frame's bytes are consumed, so the
// next reader of the socket loses nothing. One thread per socket.
#pragma once

#include <span>
#include <vector>

#include "common/transport/transport.h"

namespace fargpu::transport {

// A frame with its own memory.
struct OwnedFrame {
  wire::FrameHeader header;
  std::vector<uint64_t> body_words;  // words, for the alignment
  std::vector<std::byte> bulk;
  std::span<const std::byte> body() const { return std::as_bytes(std::span(body_words)); }
};

// kTimeout, kLost (closed, also in the middle of the frame) or kProtocol (check_header).
Result<OwnedFrame> read_one_frame(int descriptor, const wire::FrameLimits& limits,
                                  Deadline deadline);

// Writes header (its lengths are filled in here), body and bulk.
Status write_one_frame(int descriptor, wire::FrameHeader header, std::span<const std::byte> body,
                       std::span<const std::byte> bulk, Deadline deadline);

}  // namespace fargpu::transport
