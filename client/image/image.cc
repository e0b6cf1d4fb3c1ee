#include "client/image/image.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/fatbin/prelinked.h"

namespace fargpu::client {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243B1;
constexpr uint32_t kContainerMagic = 0xBA55ED50;
constexpr uint32_t kElfMagic = 0x464C457F;
constexpr size_t kContainerHeaderBytes = 16;
constexpr size_t kElfHeaderBytes = 64;

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

// PTX text begins with a comment, a directive or white space; anything else is not text.
bool looks_like_text(const std::byte* data, uint64_t limit) {
  if (limit == 0) return false;
  const auto first = static_cast<unsigned char>(data[0]);
  return first == '.' || first == '/' || first == ' ' || first == '\n' || first == '\r' ||
         first == '\t' || first == '#';
}

Result<Image> inspect_wrapper(const std::byte* data) {
  const auto wrapper = load<FatbinWrapper>(data);
  Image image;
  image.kind = ImageKind::kContainer;
  const auto* container = static_cast<const std::byte*>(wrapper.linked);
  if (container == nullptr) return invalid("fat binary wrapper without a container");
  FARGPU_ASSIGN_OR_RETURN(const uint64_t bytes, container_bytes(container, kMaxImageBytes));
  image.bytes = {container, bytes};
  if (wrapper.version != FatbinWrapper::kWithPrelinked || wrapper.prelinked == nullptr)
    return image;
  for (const auto* next = wrapper.prelinked; *next != nullptr; ++next) {
    if (image.prelinked.size() + 1 == kMaxPrelinked)
      return invalid("fat binary wrapper: too many containers");
    const auto* of_object = static_cast<const std::byte*>(*next);
    FARGPU_ASSIGN_OR_RETURN(const uint64_t size, container_bytes(of_object, kMaxImageBytes));
    image.prelinked.emplace_back(of_object, size);
  }
  return image;
}

}  // namespace

Result<uint64_t> container_bytes(const std::byte* data, uint64_t limit) {
  if (limit < kContainerHeaderBytes) return invalid("fat binary container: header cut off");
  if (load<uint32_t>(data) != kContainerMagic) return invalid("fat binary container: wrong magic");
  const uint64_t header = load<uint16_t>(data + 6);
  const auto payload = load<uint64_t>(data + 8);
  if (header < kContainerHeaderBytes || header > limit) {
    return invalid(fmt::format("fat binary container: header of {} bytes", header));
  }
  if (payload > limit - header) {
    return invalid(fmt::format("fat binary container: {} bytes claimed, at most {} possible",
                               payload, limit - header));
  }
  return header + payload;
}

Result<uint64_t> elf_bytes(const std::byte* data, uint64_t limit) {
  if (limit < kElfHeaderBytes) return invalid("ELF image: header cut off");
  if (load<uint32_t>(data) != kElfMagic) return invalid("ELF image: wrong magic");
  if (load<uint8_t>(data + 4) != 2 || load<uint8_t>(data + 5) != 1) {
    return invalid("ELF image: not 64-bit little-endian");
  }
  const auto program_offset = load<uint64_t>(data + 32);
  const auto section_offset = load<uint64_t>(data + 40);
  const uint64_t program_entry = load<uint16_t>(data + 54), programs = load<uint16_t>(data + 56);
  const uint64_t section_entry = load<uint16_t>(data + 58), sections = load<uint16_t>(data + 60);
  uint64_t end = kElfHeaderBytes;
  const auto extend = [&](uint64_t offset, uint64_t bytes) {
    if (offset > limit || bytes > limit - offset) return false;
    end = std::max(end, offset + bytes);
    return true;
  };
  if (programs > 0 && (program_entry < 56 || !extend(program_offset, programs * program_entry))) {
    return invalid("ELF image: program headers outside the image");
  }
  if (sections > 0 && (section_entry < 64 || !extend(section_offset, sections * section_entry))) {
    return invalid("ELF image: section headers outside the image");
  }
  for (uint64_t i = 0; i < programs; ++i) {
    const std::byte* header = data + program_offset + i * program_entry;
    if (!extend(load<uint64_t>(header + 8), load<uint64_t>(header + 32))) {
      return invalid(fmt::format("ELF image: segment {} outside the image", i));
    }
  }
  constexpr uint32_t kNoBits = 8;
  for (uint64_t i = 0; i < sections; ++i) {
    const std::byte* header = data + section_offset + i * section_entry;
    if (load<uint32_t>(header + 4) == kNoBits) continue;
    if (!extend(load<uint64_t>(header + 24), load<uint64_t>(header + 32))) {
      return invalid(fmt::format("ELF image: section {} outside the image", i));
    }
  }
  return end;
}

Result<Image> inspect_image(const void* data, bool lenient) {
  const auto* bytes = static_cast<const std::byte*>(data);
  if (bytes == nullptr) return invalid("image is a null pointer");
  Image image;
  const bool text = looks_like_text(bytes, 1);
  const uint32_t magic = text ? 0 : load<uint32_t>(bytes);
  const bool binary = magic == kWrapperMagic || magic == kContainerMagic || magic == kElfMagic;
  if (text || (lenient && !binary)) {
    const uint64_t length = strnlen(static_cast<const char*>(data), kMaxImageBytes);
    if (length == kMaxImageBytes) return invalid("PTX text without an end");
    image.kind = ImageKind::kPtx;
    image.bytes = {bytes, length};
    return image;
  }
  switch (magic) {
    case kWrapperMagic:
      return inspect_wrapper(bytes);
    case kContainerMagic: {
      FARGPU_ASSIGN_OR_RETURN(const uint64_t length, container_bytes(bytes, kMaxImageBytes));
      image.kind = ImageKind::kContainer;
      image.bytes = {bytes, length};
      return image;
    }
    case kElfMagic: {
      FARGPU_ASSIGN_OR_RETURN(const uint64_t length, elf_bytes(bytes, kMaxImageBytes));
      image.kind = ImageKind::kElf;
      image.bytes = {bytes, length};
      return image;
    }
    default:
      return invalid(fmt::format("unknown image format (begins with 0x{:08x})", magic));
  }
}

Result<Image> inspect_image(std::span<const std::byte> contents) {
  Image image;
  if (looks_like_text(contents.data(), contents.size())) {
    const auto* text = reinterpret_cast<const char*>(contents.data());
    image.kind = ImageKind::kPtx;
    image.bytes = contents.first(strnlen(text, contents.size()));
    return image;
  }
  if (contents.size() < kContainerHeaderBytes) {
    return invalid(fmt::format("image of {} bytes is too short", contents.size()));
  }
  const auto magic = load<uint32_t>(contents.data());
  if (magic == kContainerMagic) {
    FARGPU_ASSIGN_OR_RETURN(const uint64_t n, container_bytes(contents.data(), contents.size()));
    image.kind = ImageKind::kContainer;
    image.bytes = contents.first(n);
    return image;
  }
  if (magic == kElfMagic) {
    FARGPU_ASSIGN_OR_RETURN(const uint64_t n, elf_bytes(contents.data(), contents.size()));
    image.kind = ImageKind::kElf;
    image.bytes = contents.first(n);
    return image;
  }
  return invalid(fmt::format("unknown image format (begins with 0x{:08x})", magic));
}

}  // namespace fargpu::client
