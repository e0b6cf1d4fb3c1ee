// Memory of the application that fargpu reads and writes outside of the application's calls
// (mirrors, copies in stream order). The application may have unmapped or protected it or truncated
// its file, and may do so meanwhile; so fargpu never accesses it directly. The system copies, and
// reports where it could not.
//
// The protection of pages does not count, as it does not for a GPU's access to pinned pages: pages
// without any access and read-only ones are read and written all the same, where /proc is there.
//
// Any thread; errno stays as it is. Some microseconds for a call, and about half as fast again as
// memcpy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fargpu {

struct CopiedPart {
  size_t bytes = 0;   // that were copied, from the first one on
  bool gone = false;  // fewer than wanted: the page behind them has no memory of the application
};
CopiedPart read_foreign(uint64_t address, std::span<std::byte> to);
CopiedPart write_foreign(uint64_t address, std::span<const std::byte> from);

struct ForeignPiece {
  uint64_t address = 0;
  std::span<const std::byte> bytes;
};
// Small pieces in as few system calls as possible. Unwritable parts are left out.
void write_foreign_pieces(std::span<const ForeignPiece> pieces);

}  // namespace fargpu
