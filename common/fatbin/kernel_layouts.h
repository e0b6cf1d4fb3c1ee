// What an image says of its kernels' parameters and blocks, and of its variables. Pure functions
// over memory of the caller; nothing outside the image is read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace fargpu {

struct ParameterLayout {
  std::vector<unsigned> offsets, sizes;  // bytes, one of each per parameter
  // The only block that a launch may have (PTX: .reqntid; OpenCL: reqd_work_group_size); 0: any.
  std::array<unsigned, 3> required_block{};
  bool operator==(const ParameterLayout&) const = default;
};

// The kernels of images.
struct KernelLayouts {
  // By name. More than one layout: entries for different GPUs differ. None: the kernel is there,
  // but its parameters cannot be read.
  std::unordered_map<std::string, std::vector<ParameterLayout>> kernels;
  // There may be more kernels: a part is for linkers alone, damaged, or of an unknown form.
  bool has_more = false;
};

// Adds what a cubin, a PTX text, a fat binary of them, or a block of fat binaries (prelinked.h)
// says. Takes about as long as unpacking the image.
void read_kernel_layouts(std::span<const std::byte> image, KernelLayouts& layouts);

// The device memory of the image's variables and constants on a GPU of that compute capability (90
// for 9.0): of the entries that a driver may choose, the largest. nullopt: it cannot be told. Takes
// about as long as unpacking those.
std::optional<uint64_t> variable_bytes(std::span<const std::byte> image, unsigned capability);

// The PTX that a driver compiles to load the image on such a GPU, at most: 0 where it finds machine
// code. As the image says; nothing is unpacked.
uint64_t ptx_bytes(std::span<const std::byte> image, unsigned capability);

}  // namespace fargpu
