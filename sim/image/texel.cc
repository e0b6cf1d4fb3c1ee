#include "sim/image/texel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "sim/image/half_math.h"

namespace fargpu::sim {
namespace {

bool is_signed(const PixelFormat& format) {
  return format.kind == PixelFormat::Kind::kSigned || format.kind == PixelFormat::Kind::kSnorm;
}

// sRGB to linear light.
float decoded(float value) {
  return value <= 0.04045f ? value / 12.92f : std::pow((value + 0.055f) / 1.055f, 2.4f);
}

uint32_t largest(const PixelFormat& format) {
  const unsigned bits = 8u * format.bytes - (is_signed(format) ? 1 : 0);
  return static_cast<uint32_t>((uint64_t{1} << bits) - 1);
}

// Of 32 bits as the program gives them: what is stored in the format's channel.
uint32_t stored(const PixelFormat& format, uint32_t bits) {
  switch (format.kind) {
    case PixelFormat::Kind::kUnsigned:
      return std::min(bits, largest(format));
    case PixelFormat::Kind::kSigned: {
      const auto most = static_cast<int32_t>(largest(format));
      return static_cast<uint32_t>(std::clamp(static_cast<int32_t>(bits), -most - 1, most));
    }
    case PixelFormat::Kind::kUnorm:
    case PixelFormat::Kind::kSnorm: {
      const float value = std::bit_cast<float>(bits);
      const float least = format.kind == PixelFormat::Kind::kUnorm ? 0.0f : -1.0f;
      if (std::isnan(value)) return 0;
      const float scaled = std::clamp(value, least, 1.0f) * static_cast<float>(largest(format));
      return static_cast<uint32_t>(static_cast<int32_t>(std::nearbyint(scaled)));
    }
    case PixelFormat::Kind::kFloat:
      break;
  }
  if (format.bytes == 4) return bits;
  return double_to_half<F16>(std::bit_cast<float>(bits), HalfRounding::kNearest);
}

}  // namespace

std::array<uint32_t, 4> read_channels(const PixelFormat& format, const uint8_t* element) {
  std::array<uint32_t, 4> channels{};
  for (unsigned c = 0; c < format.channels; ++c) {
    uint32_t bits = 0;
    std::memcpy(&bits, element + size_t{c} * format.bytes, format.bytes);
    if (is_signed(format) && format.bytes < 4) {
      const unsigned unused = 32u - 8u * format.bytes;
      bits = static_cast<uint32_t>(static_cast<int32_t>(bits << unused) >> unused);
    }
    channels[c] = bits;
  }
  return channels;
}

float channel_value(const PixelFormat& format, uint32_t bits, bool srgb) {
  if (format.kind == PixelFormat::Kind::kFloat)
    return format.bytes == 4 ? std::bit_cast<float>(bits)
                             : half_to_float<F16>(static_cast<uint16_t>(bits));
  const auto most = static_cast<float>(largest(format));
  // The least signed number is -1, too.
  if (is_signed(format))
    return std::max(static_cast<float>(static_cast<int32_t>(bits)) / most, -1.0f);
  const float value = static_cast<float>(bits) / most;
  return srgb && format.bytes == 1 ? decoded(value) : value;
}

void write_channels(const PixelFormat& format, const std::array<uint32_t, 4>& bits,
                    uint8_t* element) {
  for (unsigned c = 0; c < format.channels; ++c) {
    const uint32_t value = stored(format, bits[c]);
    std::memcpy(element + size_t{c} * format.bytes, &value, format.bytes);
  }
}

}  // namespace fargpu::sim
