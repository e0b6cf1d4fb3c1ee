// The contents of a container's entries, and the choice of PTX for a device. Pure functions over
// memory that the caller owns; a damaged entry is a Status.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/fatbin/fatbin.h"

namespace fargpu {

// How machine code (a cubin) begins.
inline constexpr std::string_view kElfMagic =
    "\x7f"
    "ELF";

// The payload as it was before compression (zstd, LZ4 block or none).
Result<std::string> entry_contents(const FatbinEntry& entry);

// The PTX text that suits a device best: the highest arch not above its capability. kNotFound when
// there is none; the message lists the existing entries.
Result<std::string> select_ptx(std::span<const FatbinEntry> entries, int compute_capability);

}  // namespace fargpu
