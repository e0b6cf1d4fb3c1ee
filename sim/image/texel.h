// One element of an image, decoded. Pure.
#pragma once

#include <array>
#include <cstdint>

#include "sim/image/image.h"

namespace fargpu::sim {

// The bits of an element's channels, widened by their signs; what the format lacks is 0.
std::array<uint32_t, 4> read_channels(const PixelFormat& format, const uint8_t* element);
// The value of a channel: numbers, or shares of the largest one.
float channel_value(const PixelFormat& format, uint32_t bits, bool srgb);
// The other way, for formatted stores: the nearest value that the format has.
void write_channels(const PixelFormat& format, const std::array<uint32_t, 4>& bits,
                    uint8_t* element);

}  // namespace fargpu::sim
