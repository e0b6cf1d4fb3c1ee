// What commit() demands of a frame, whatever carries it.
#pragma once

#include <cstdint>
#include <span>

#include "common/wire/frame.h"

namespace fargpu::transport {

using Bytes = std::span<const std::byte>;

// `slot` is what reserve() gave, of which `bytes` are the frame. The number of bulk bytes, or
// kInvalidArgument when the frame does not fit its slot or its header says otherwise.
Result<uint64_t> check_commit(Bytes slot, size_t bytes, std::span<const Bytes> bulk);

}  // namespace fargpu::transport
