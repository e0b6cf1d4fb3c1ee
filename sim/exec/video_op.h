// The variant of a video instruction, as it travels in Instr::imm.
#pragma once

#include <bit>
#include <cstdint>

namespace fargpu::sim {

enum class VideoKind : uint32_t {
  kAdd,
  kSub,
  kAbsDiff,
  kMin,
  kMax,
  kAverage,
  kSet,
  kShl,
  kShr,
  kMad
};
enum class VideoCompare : uint32_t { kEq, kNe, kLt, kLe, kGt, kGe };
enum class VideoSecond : uint32_t { kNone, kAdd, kMin, kMax };

struct VideoOp {
  VideoKind kind : 4 = VideoKind::kAdd;
  VideoCompare compare : 3 = VideoCompare::kEq;
  VideoSecond second : 2 = VideoSecond::kNone;
  uint32_t a_signed : 1 = 0, b_signed : 1 = 0, d_signed : 1 = 0;
  uint32_t saturate : 1 = 0, wrap : 1 = 0, accumulate : 1 = 0;
  uint32_t negate_product : 1 = 0, negate_c : 1 = 0, plus_one : 1 = 0;
  uint32_t shift : 4 = 0;     // of vmad: 0, 7 or 15
  uint32_t parts : 3 = 0;     // packed: 2 or 4
  uint32_t mask : 4 = 0;      // packed: which parts are written
  uint32_t d_select : 3 = 7;  // scalar: 0-3 bytes, 4-5 halves, 7 the whole
  // packed: a selector of 4 bits per part; scalar: 0-3, 4-5, 6 the whole
  uint32_t a_select : 16 = 0;
  uint32_t b_select : 16 = 0;
};
static_assert(sizeof(VideoOp) == sizeof(uint64_t));

inline uint64_t pack_video(const VideoOp& op) { return std::bit_cast<uint64_t>(op); }
inline VideoOp unpack_video(uint64_t bits) { return std::bit_cast<VideoOp>(bits); }

}  // namespace fargpu::sim
