// Pieces of images as they cross a network: plain, or as one zstd frame each.
//
// A packed piece is exactly one frame that names its content size. Unpacking trusts nothing: the
// size is checked before unpacking, memory use does not depend on it, and a frame of another size
// is kProtocol. One thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace fargpu::wire {

// Most bytes that one packed piece may stand for.
inline constexpr uint64_t kMaxPackedPieceBytes = 64u << 20;

// FARGPU_COMPRESS: compress pieces that shrink if they cross a network (kAuto), always (kZstd), or
// never.
enum class Compression { kAuto, kZstd, kNone };
// "auto" (also ""), "zstd", "none"; kInvalidArgument.
Result<Compression> parse_compression(std::string_view text);

class PiecePacker {
 public:
  PiecePacker();
  ~PiecePacker();
  // The frame, valid until the next call; empty when it would not be smaller than seven eighths of
  // the piece.
  std::span<const std::byte> pack(std::span<const std::byte> piece);

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
  std::vector<std::byte> frame_;
};

// Hands the `raw_bytes` bytes that `frame` stands for to `sink`, in order, in parts of at most 128
// KiB. kProtocol: not one whole frame, another size than announced, a size of 0 or above
// kMaxPackedPieceBytes. A Status of the sink ends it and is returned.
Status unpack_piece(std::span<const std::byte> frame, uint64_t raw_bytes,
                    const std::function<Status(std::span<const std::byte>)>& sink);

}  // namespace fargpu::wire
