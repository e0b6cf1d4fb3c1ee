// The two compressions of fat binary entries. `bytes`: the announced size of the result; anything
// else is an error.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/base/status.h"

namespace fargpu {

Result<std::string> decompress_zstd(std::span<const std::byte> compressed, size_t bytes);
Result<std::string> decompress_lz4(std::span<const std::byte> compressed, size_t bytes);

}  // namespace fargpu
