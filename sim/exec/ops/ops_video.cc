// Video instructions: scalar ones on selected bytes or halves (vadd, vmad ...) and packed ones on 2
// halves or 4 bytes (vabsdiff4 ...), with saturation and an optional second operation.
#include "sim/exec/machine.h"
#include "sim/exec/ops/ops.h"
#include "sim/exec/video_op.h"

namespace fargpu::sim {
namespace {

int64_t part_of(uint32_t value, unsigned shift, unsigned bits, bool is_signed) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  const auto v = static_cast<int64_t>(value >> shift & mask);
  return is_signed && (v >> (bits - 1) & 1) != 0 ? v - (int64_t{1} << bits) : v;
}

int64_t clamp(int64_t v, unsigned bits, bool is_signed) {
  const int64_t high = is_signed ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
  const int64_t low = is_signed ? -high - 1 : 0;
  return v < low ? low : v > high ? high : v;
}

bool holds(VideoCompare c, int64_t a, int64_t b) {
  switch (c) {
    case VideoCompare::kEq:
      return a == b;
    case VideoCompare::kNe:
      return a != b;
    case VideoCompare::kLt:
      return a < b;
    case VideoCompare::kLe:
      return a <= b;
    case VideoCompare::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

int64_t basic(const VideoOp& op, int64_t a, int64_t b, int64_t c) {
  switch (op.kind) {
    case VideoKind::kAdd:
      return a + b;
    case VideoKind::kSub:
      return a - b;
    case VideoKind::kAbsDiff:
      return a < b ? b - a : a - b;
    case VideoKind::kMin:
      return a < b ? a : b;
    case VideoKind::kMax:
      return a < b ? b : a;
    case VideoKind::kAverage: {  // rounded away from zero for sums that are not negative, toward it
                                 // otherwise
      const int64_t sum = a + b;
      return sum >= 0 ? (sum + 1) >> 1 : sum >> 1;
    }
    case VideoKind::kSet:
      return holds(op.compare, a, b) ? 1 : 0;
    default:
      return c;
  }
}

void packed(Exec& x, const Instr& in) {
  const VideoOp op = unpack_video(in.imm);
  uint32_t* d = x.at<uint32_t>(in.dst);
  const uint32_t *a = x.at<uint32_t>(in.a), *b = x.at<uint32_t>(in.b), *c = x.at<uint32_t>(in.c);
  const unsigned bits = 32 / op.parts;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    uint32_t result = op.accumulate ? 0 : c[l];
    uint32_t total = c[l];
    for (unsigned i = 0; i < op.parts; ++i) {
      if ((op.mask >> i & 1u) == 0) continue;
      const auto pick = [&](unsigned selector) {
        const unsigned index = selector % op.parts;
        return selector < op.parts ? part_of(a[l], index * bits, bits, op.a_signed)
                                   : part_of(b[l], index * bits, bits, op.b_signed);
      };
      int64_t v =
          basic(op, pick(op.a_select >> 4 * i & 0xfu), pick(op.b_select >> 4 * i & 0xfu), 0);
      if (op.saturate) v = clamp(v, bits, op.d_signed);
      if (op.accumulate) {
        total += static_cast<uint32_t>(v);
      } else {
        const uint32_t mask = ((bits == 32 ? 0 : 1u << bits) - 1) << i * bits;
        result = (result & ~mask) | (static_cast<uint32_t>(v) << i * bits & mask);
      }
    }
    d[l] = op.accumulate ? total : result;
  }
}

// Selected part of a 32-bit operand: 0-3 bytes, 4-5 halves, 6 the whole.
int64_t selected(uint32_t value, unsigned select, bool is_signed) {
  if (select < 4) return part_of(value, select * 8, 8, is_signed);
  if (select < 6) return part_of(value, (select - 4) * 16, 16, is_signed);
  return part_of(value, 0, 32, is_signed);
}

void scalar(Exec& x, const Instr& in) {
  const VideoOp op = unpack_video(in.imm);
  uint32_t* d = x.at<uint32_t>(in.dst);
  const uint32_t *a = x.at<uint32_t>(in.a), *b = x.at<uint32_t>(in.b);
  const uint32_t* c = in.c == kNoOperand ? nullptr : x.at<uint32_t>(in.c);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    const int64_t va = selected(a[l], op.a_select & 7u, op.a_signed);
    const int64_t vb = selected(b[l], op.b_select & 7u, op.b_signed);
    const int64_t vc = c == nullptr ? 0 : part_of(c[l], 0, 32, op.d_signed);
    int64_t v = 0;
    if (op.kind == VideoKind::kShl || op.kind == VideoKind::kShr) {
      const auto amount = static_cast<uint32_t>(vb);
      const uint32_t by = op.wrap ? amount & 31u : amount < 32 ? amount : 32;
      v = op.kind == VideoKind::kShl ? va << by : va >> by;
    } else if (op.kind == VideoKind::kMad) {
      int64_t product = va * vb;
      if (op.negate_product) product = -product;
      v = product + (op.negate_c ? -vc : vc) + (op.plus_one ? 1 : 0);
      v >>= op.shift;
    } else {
      v = basic(op, va, vb, vc);
    }
    if (op.saturate) v = clamp(v, 32, op.d_signed);
    auto result = static_cast<uint32_t>(v);
    if (op.d_select != 7) {  // into a part of c
      const unsigned bits = op.d_select < 4 ? 8 : op.d_select < 6 ? 16 : 32;
      const unsigned at = op.d_select < 4   ? op.d_select * 8
                          : op.d_select < 6 ? (op.d_select - 4u) * 16
                                            : 0;
      const uint32_t mask = bits == 32 ? ~0u : ((1u << bits) - 1) << at;
      result = ((c == nullptr ? 0 : c[l]) & ~mask) | (result << at & mask);
    } else if (op.second != VideoSecond::kNone && c != nullptr) {
      const int64_t r = part_of(result, 0, 32, op.d_signed);
      result = op.second == VideoSecond::kAdd   ? result + c[l]
               : op.second == VideoSecond::kMin ? static_cast<uint32_t>(r < vc ? r : vc)
                                                : static_cast<uint32_t>(r > vc ? r : vc);
    }
    d[l] = result;
  }
}

}  // namespace

void add_video_ops(OpTable& table) {
  table.add("video.packed", packed);
  table.add("video.scalar", scalar);
}

}  // namespace fargpu::sim
