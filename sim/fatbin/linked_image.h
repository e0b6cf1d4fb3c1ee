// The result of linking for the simulated GPU: PTX texts in one block, which module loading accepts
// like any other image. The block is an ELF file with one segment, because programs copy the linked
// image and pass the copy by its address only: its size stands in ELF's headers. Layout: ELF
// header, program header, u32 magic, u32 number of texts, per text u64 length and its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace fargpu::sim {

constexpr uint32_t kLinkedMagic = 0x4B4C4746;  // "FGLK"
constexpr size_t kElfHeaderBytes = 64;

std::vector<std::byte> pack_linked_image(std::span<const std::string> texts);
// Size of the block that begins with this ELF file; 0: it is none of ours. Looks at the first
// kElfHeaderBytes, and farther only where these say that there is more.
size_t linked_image_size(const std::byte* file);
Result<std::vector<std::string>> read_linked_image(std::span<const std::byte> image);

}  // namespace fargpu::sim
