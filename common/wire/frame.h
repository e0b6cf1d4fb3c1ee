// The frame: everything that travels between client and server.
//
//   [ FrameHeader: 32 bytes ][ body: one Cap'n Proto segment, no segment table ][ bulk: raw bytes ]
//
// Little-endian, 8-byte aligned; body_bytes is a multiple of 8 (0: no body); bulk_bytes is any
// length, and no padding follows it. The header can be judged before any Cap'n Proto code runs.
// docs/wire-format.md is the specification.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/status.h"

namespace fargpu::wire {

inline constexpr uint16_t kMagic = 0x4746;  // "FG" in memory order
// In Hello; any change of this file or of control.capnp's meaning bumps it.
inline constexpr uint16_t kProtocolVersion = 1;
// Below: session control (control.capnp); from here on: registry.yml.
inline constexpr uint16_t kFirstApiOpcode = 64;

enum FrameFlags : uint16_t {
  // server to client: answers `sequence`; `result` holds the CUresult
  kReply = 1 << 0,
  // client to server: the caller waits. Without it a reply is sent only for an error (kAsyncError)
  kWantReply = 1 << 1,
  // server to client, unasked (device output, host function to run); sequence is 0
  kNotice = 1 << 2,
  // with kReply: no call waits for this reply; the client keeps the error for a later call
  kAsyncError = 1 << 3,
};
inline constexpr uint16_t kKnownFlags = kReply | kWantReply | kNotice | kAsyncError;

struct FrameHeader {
  uint16_t magic = kMagic;
  uint16_t opcode = 0;      // control opcodes < kFirstApiOpcode <= API opcodes
  uint16_t flags = 0;       // FrameFlags
  uint16_t context = 0;     // client-made id of the calling thread's current context; 0: none
  uint32_t sequence = 0;    // per session, per direction of asking; starts at 1, wraps past 0
  uint32_t body_bytes = 0;  // of the Cap'n Proto segment
  uint64_t bulk_bytes = 0;
  int32_t result = 0;     // CUresult in replies; 0 in requests
  uint32_t reserved = 0;  // must be 0
};
static_assert(sizeof(FrameHeader) == 32);

// The 8-byte words that so many bytes take, in bytes.
constexpr size_t whole_words(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

// Limits of received frames. The server's come from its configuration; both ends learn the other's
// in the hello.
struct FrameLimits {
  uint32_t max_body_bytes = 1u << 20;   // 1 MiB
  uint64_t max_bulk_bytes = 64u << 20;  // 64 MiB: larger copies travel as several frames
};

// kProtocol with the offending value unless magic, flags, reserved, alignment and lengths are all
// acceptable.
Status check_header(const FrameHeader& header, const FrameLimits& limits);

}  // namespace fargpu::wire
