// The pair of sockets between the daemon and one of its workers, or between two workers that the
// daemon has connected: whole messages, each a frame header and a body, and perhaps a descriptor.
// One thread at a time receives at an end; any thread may send.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/transport/transport.h"
#include "common/wire/frame.h"

namespace fargpu::server {

inline constexpr size_t kMostMessageBytes = 64u << 10;
inline constexpr size_t kMostDescriptors = 8;

// A whole message, as it is sent.
using MessageBytes = std::vector<std::byte>;

// A received message. Header and size are checked, the body is not.
struct ReceivedMessage {
  wire::FrameHeader header;
  std::vector<uint64_t> body_words;  // words, for the alignment
  std::span<const std::byte> body() const { return std::as_bytes(std::span(body_words)); }
  bool is_reply() const { return (header.flags & wire::kReply) != 0; }
};

// The daemon's end, and the end that a worker inherits. Both are close-on-exec.
Result<std::pair<Fd, Fd>> make_control_sockets();

// kTimeout: no room until the deadline; nothing was sent. kLost: the other end is closed.
Status send_message(int socket, const MessageBytes& message, transport::Deadline deadline);
// The same with a descriptor, or with at most kMostDescriptors, which stay the caller's.
Status send_message(int socket, const MessageBytes& message, int descriptor,
                    transport::Deadline deadline);
Status send_message(int socket, const MessageBytes& message, std::span<const int> descriptors,
                    transport::Deadline deadline);
// kTimeout: none arrived; a deadline in the past polls once. kLost: the other end is closed.
// kProtocol: malformed.
// A descriptor that is attached goes into *descriptor, or all into *descriptors; untaken
// descriptors are closed.
Result<ReceivedMessage> receive_message(int socket, transport::Deadline deadline,
                                        Fd* descriptor = nullptr);
Result<ReceivedMessage> receive_message(int socket, transport::Deadline deadline,
                                        std::vector<Fd>* descriptors);

}  // namespace fargpu::server
