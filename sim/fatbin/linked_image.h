// The result of linking for the simulated GPU: PTX texts in one block, which module loading accepts
// like any other image. Layout: u32 magic, u32 number of texts, u64 size of the whole, then per
// text u64 length and its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace fargpu::sim {

constexpr uint32_t kLinkedMagic = 0x4B4C4746;  // "FGLK"
constexpr size_t kLinkedHeaderBytes = 16;

std::vector<std::byte> pack_linked_image(std::span<const std::string> texts);
// Size of the block that begins here; the span needs kLinkedHeaderBytes.
Result<size_t> linked_image_size(std::span<const std::byte> header);
Result<std::vector<std::string>> read_linked_image(std::span<const std::byte> image);

}  // namespace fargpu::sim
