#include "sim/matrix/product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "sim/image/half_math.h"

namespace fargpu::sim {
namespace {

constexpr unsigned kLanes = 32;
constexpr size_t kMostOperand = 16 * 256, kMostAccumulator = 32 * 8;

double e4m3_value(uint32_t bits) {
  const uint32_t exponent = bits >> 3 & 15u, fraction = bits & 7u;
  double value = exponent == 0 ? std::ldexp(fraction, -9)
                               : std::ldexp(8 + fraction, static_cast<int>(exponent) - 10);
  if ((bits & 0x7fu) == 0x7f) value = std::numeric_limits<double>::quiet_NaN();
  return (bits & 0x80u) != 0 ? -value : value;
}

template <typename V>
V decode(Element element, uint64_t bits) {
  const auto word = static_cast<uint32_t>(bits);
  if constexpr (std::is_same_v<V, int64_t>) {
    switch (element) {
      case Element::kS4:
        return static_cast<int64_t>(word ^ 8u) - 8;
      case Element::kS8:
        return static_cast<int8_t>(word);
      case Element::kS32:
        return static_cast<int32_t>(word);
      default:
        return word;
    }
  } else {
    switch (element) {
      case Element::kE4m3:
        return e4m3_value(word);
      case Element::kE5m2:  // the upper half of an f16
        return half_to_float<F16>(static_cast<uint16_t>(word << 8));
      case Element::kF16:
        return half_to_float<F16>(static_cast<uint16_t>(word));
      case Element::kBf16:
        return half_to_float<Bf16>(static_cast<uint16_t>(word));
      case Element::kTf32:  // the lower bits of the fraction do not count
        return std::bit_cast<float>(word & ~0x1fffu);
      case Element::kF32:
        return std::bit_cast<float>(word);
      default:
        return std::bit_cast<double>(bits);
    }
  }
}

template <typename V>
uint64_t encode(const Product& p, V value) {
  if constexpr (std::is_same_v<V, int64_t>) {
    constexpr int64_t kLeast = std::numeric_limits<int32_t>::min(),
                      kMost = std::numeric_limits<int32_t>::max();
    return static_cast<uint64_t>(p.saturate ? std::clamp(value, kLeast, kMost) : value);
  } else {
    if (p.d.element == Element::kF16) return double_to_half<F16>(value, HalfRounding::kNearest);
    if (p.d.element == Element::kF64) return std::bit_cast<uint64_t>(value);
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  }
}

template <typename V>
void gather(const Fragment& f, Columns registers, V* values) {
  const unsigned count = f.per_lane();
  const uint16_t* place = f.places.data();
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned i = 0; i < count; ++i) {
      values[*place++] = decode<V>(f.element, read_element(f, registers, lane, i));
    }
  }
}

template <typename V>
V step(const Product& p, V a, V b, V sum) {
  if constexpr (std::is_same_v<V, int64_t>) {
    if (p.logic == BitLogic::kXor) return sum + (a ^ b);
    if (p.logic == BitLogic::kAnd) return sum + (a & b);
    return sum + a * b;
  } else {
    return p.d.element == Element::kF64 ? std::fma(a, b, sum) : sum + a * b;
  }
}

template <typename V>
void run(const Product& p, Columns a, Columns b, Columns c, Columns d) {
  alignas(64) V left[kMostOperand], right[kMostOperand], sums[kMostAccumulator];
  gather(p.a, a, left);
  gather(p.b, b, right);
  gather(p.c, c, sums);
  const unsigned m = p.a.rows, n = p.b.columns, k = p.a.columns;
  for (unsigned row = 0; row < p.a.batches * m; ++row) {
    const V* of_batch = right + size_t{row / m} * k * n;
    V* sum = sums + size_t{row} * n;
    for (unsigned i = 0; i < k; ++i) {
      const V factor = left[row * k + i];
      for (unsigned column = 0; column < n; ++column)
        sum[column] = step<V>(p, factor, of_batch[i * n + column], sum[column]);
    }
  }
  const unsigned count = p.d.per_lane();
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned i = 0; i < count; ++i)
      write_element(p.d, d, lane, i, encode<V>(p, sums[p.d.places[size_t{lane} * count + i]]));
  }
}

}  // namespace

void multiply(const Product& product, Columns a, Columns b, Columns c, Columns d) {
  if (is_whole_number(product.d.element)) {
    run<int64_t>(product, a, b, c, d);
  } else {
    run<double>(product, a, b, c, d);
  }
}

}  // namespace fargpu::sim
