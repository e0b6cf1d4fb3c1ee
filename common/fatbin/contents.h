// The contents of a container's entries. Pure functions over memory that the caller owns; a damaged
// entry is a Status.
#pragma once

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

}  // namespace fargpu
