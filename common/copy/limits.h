// Sizes that both ends of a copy go by. The client counts with them what a copy takes of a stream's
// queue and of staging memory; the worker refuses more, and cuts copies so. Any thread.
#pragma once

#include <cstdint>

#include "common/copy/shape.h"

namespace fargpu::copy {

// Copies that follow their stream (Completion::Kind::kFollow).
// Bytes of one call: bounds what a call can put into a stream.
inline constexpr uint64_t kMostFollowing = 64u << 20;
// Bytes of deliveries that hold no stream (Hold::kNever), all together: staging memory for them is
// never waited for.
inline constexpr uint64_t kMostUnheld = 32u << 20;
// The copy engine and the network take turns with pieces of this size.
inline constexpr uint64_t kPieceBytes = 4u << 20;
// The adapter writes deliveries to the client (rdma) in smaller pieces, unless that gives too many.
inline constexpr uint64_t kWrittenPieceBytes = 1u << 20;
inline constexpr uint64_t kWrittenInSmallPieces = 16u << 20;
// Copies of this size and more travel over the bulk channel, where there is one.
inline constexpr uint64_t kBulkFrom = 1u << 20;

// Bytes of one call that the adapter reads from the client's memory, or writes to it (rdma): bounds
// the staging memory that a client can make the worker take at once.
inline constexpr uint64_t kMostRemote = 16u << 20;

// A driver takes the bytes of a copy from pageable memory of up to this size in the call.
inline constexpr uint64_t kTakenInCall = 64u << 10;
// The worker keeps the bytes of a copy of up to this size in pageable memory, so its driver takes
// them into the queue of the stream. Blocks of staging memory have powers of two.
inline constexpr uint64_t kMostPageable = kTakenInCall / 2;

// The size of the pieces in which a copy of so many bytes follows its stream. `written`: by the
// adapter.
constexpr uint64_t following_piece_bytes(uint64_t bytes, bool written) {
  return written && bytes <= kWrittenInSmallPieces ? kWrittenPieceBytes : kPieceBytes;
}
// Bytes of a copy that may be amended (Completion::Kind::kAmended).
inline constexpr uint64_t kMostAmended = kTakenInCall;
// The same while the client compares them whenever it sends work.
inline constexpr uint64_t kMostComparedOften = 4u << 10;

// How many pieces of at most `limit` bytes piece_at() makes of a shape that is not empty.
uint64_t count_pieces(const Shape& shape, uint64_t limit);

}  // namespace fargpu::copy
