// Finds the format and size of an image argument (cuModuleLoadData, cuLibraryLoadData, ...).
//
// The CUDA API passes images as bare pointers. The size is found by reading headers; each is
// checked against a plausible maximum before it is used. A fat binary wrapper is replaced by the
// containers that it points to. Pure functions over memory of the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"

namespace fargpu::client {

enum class ImageKind : uint8_t { kContainer, kElf, kPtx };

class OwnLayouts;

inline constexpr uint64_t kMaxImageBytes = uint64_t{4} << 30;

struct Image {
  ImageKind kind = ImageKind::kPtx;
  std::span<const std::byte> bytes;  // in the caller's memory; PTX without its NUL
  // Of a version-2 wrapper: the containers of the objects that `bytes` was linked from. A driver
  // links them itself for a GPU that `bytes` has no code for.
  std::vector<std::span<const std::byte>> prelinked{};
  std::shared_ptr<OwnLayouts> layouts{};  // of a linked image: those of its inputs
};

// `data`: wrapper, container, ELF or NUL-terminated PTX text. kInvalidArgument has the reason.
// `lenient`: an unknown format counts as text, which the driver checks.
Result<Image> inspect_image(const void* data, bool lenient = false);
// The same for a file's contents, whose length is known: nothing beyond `contents` is read.
Result<Image> inspect_image(std::span<const std::byte> contents);

// Bytes of the container or ELF file that begins at `data`; `limit`: bytes that may be read or
// claimed.
Result<uint64_t> container_bytes(const std::byte* data, uint64_t limit);
Result<uint64_t> elf_bytes(const std::byte* data, uint64_t limit);

}  // namespace fargpu::client
