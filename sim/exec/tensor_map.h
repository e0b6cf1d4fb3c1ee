// The 128 bytes of a tensor map as the simulated driver encodes them and its bulk copies read them.
// A real driver's are other ones; no other code reads them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fargpu::sim {

struct TensorMap {
  static constexpr uint64_t kMark = 0x3170'616d'726f'736e;  // not a map: anything else
  static constexpr size_t kMostRank = 5;
  static constexpr uint16_t kMostBox = 256;

  uint64_t mark = 0;
  uint64_t address = 0;
  std::array<uint64_t, kMostRank> strides{};  // bytes from one element to the next
  std::array<uint32_t, kMostRank> size{};     // elements less one
  std::array<uint16_t, kMostRank> box{};      // elements of the tensor that a copy covers
  std::array<uint8_t, kMostRank> step{};      // every how manieth of them is copied
  uint8_t rank = 0;
  uint8_t element_bytes = 0;
  uint8_t swizzle_bits = 0;  // bits of a shared address, from 7 on, that change bits from 4 on
  uint8_t fill = 0;          // byte of an element outside of the tensor, in all of its bytes
  uint8_t unused[33] = {};
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace fargpu::sim
