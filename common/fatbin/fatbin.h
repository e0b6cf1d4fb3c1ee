// The container format of CUDA images ("fat binary"): finds the entries in a block of bytes. Every
// offset and size is checked against the block; a damaged container is a Status and never a read
// outside it. Pure functions over memory that the caller owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"

namespace fargpu {

constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr uint32_t kWrapperMagic = 0x466243B1;

constexpr uint64_t kFatbinLz4 = 0x2000, kFatbinZstd = 0x8000;  // flags of an entry

enum class EntryKind : uint16_t { kPtx = 1, kCubin = 2 };

struct FatbinEntry {
  uint16_t kind = 0;  // EntryKind, or something we do not know
  uint32_t arch = 0;  // 75 for sm_75
  uint64_t flags = 0;
  std::span<const std::byte> payload;  // still compressed when flags say so
  std::span<const std::byte> whole;    // with its header and padding
  uint64_t uncompressed_bytes = 0;
};

// Size of the container that begins here, header included; needs at least kFatbinHeaderBytes.
constexpr size_t kFatbinHeaderBytes = 16;
Result<size_t> fatbin_size(std::span<const std::byte> header);

// All entries of a container. Bytes after its end are ignored.
Result<std::vector<FatbinEntry>> read_fatbin(std::span<const std::byte> container);

// The header of `container`, which has been read, for so many bytes of entries.
std::vector<std::byte> fatbin_header(std::span<const std::byte> container, uint64_t body_bytes);

}  // namespace fargpu
