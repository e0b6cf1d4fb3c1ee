// A packed piece of an image that a peer wrote: the first four bytes say which size it announced,
// the rest is the frame. No more comes out than was announced, in parts of bounded size, and
// exactly as much when it is taken.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "common/wire/image_piece.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t announced = 0;
  if (size < sizeof announced) return 0;
  std::memcpy(&announced, data, sizeof announced);
  uint64_t unpacked = 0;
  const auto status = fargpu::wire::unpack_piece(
      {reinterpret_cast<const std::byte*>(data) + sizeof announced, size - sizeof announced},
      announced, [&](std::span<const std::byte> part) {
        if (part.empty() || part.size() > (128u << 10)) std::abort();
        unpacked += part.size();
        if (unpacked > announced) std::abort();
        return fargpu::Status();
      });
  if (status.ok() && unpacked != announced) std::abort();
  return 0;
}
