// The containers of a program whose device code nvcc linked (-rdc=true): first the linked
// container, then the containers of its objects, which a driver links itself for a GPU without code
// in the first. A wrapper of version 2 points to them. They travel as one block:
//
//   u32 magic, u32 count     little-endian
//   u64 bytes of each
//   the containers, each followed by zeros up to a multiple of 8 bytes
//
// A damaged block is a Status and never a read outside it. Pure functions over memory of the
// caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"

namespace fargpu {

inline constexpr size_t kMaxPrelinked = 4096;  // containers

// The wrapper that compilers put around a container in memory; `magic` is kWrapperMagic (fatbin.h).
struct FatbinWrapper {
  static constexpr uint32_t kWithPrelinked = 2;  // version
  uint32_t magic = 0;
  uint32_t version = 0;
  const void* linked = nullptr;
  const void* const* prelinked = nullptr;  // up to a null pointer; of version 2 alone
};

// The pieces of a block, one behind the other. Moves, does not copy: the first is its `header`.
struct PrelinkedBlock {
  PrelinkedBlock() = default;
  PrelinkedBlock(PrelinkedBlock&&) = default;
  PrelinkedBlock& operator=(PrelinkedBlock&&) = default;

  std::vector<std::byte> header;
  std::vector<std::span<const std::byte>> pieces;
};
PrelinkedBlock prelinked_block(std::span<const std::span<const std::byte>> containers);

// The containers in a block; none: it is not such a block.
Result<std::vector<std::span<const std::byte>>> read_prelinked(std::span<const std::byte> block);

}  // namespace fargpu
