#include "sim/fatbin/linked_image.h"

#include <cstring>

namespace fargpu::sim {
namespace {

constexpr size_t kCountAt = 4, kSizeAt = 8;
constexpr uint64_t kMaxImage = uint64_t{4} << 30;

Status damaged() {
  return Status(StatusCode::kInvalidArgument, "damaged image of the simulated linker");
}

template <typename T>
void append(std::vector<std::byte>* image, T value) {
  const size_t at = image->size();
  image->resize(at + sizeof value);
  std::memcpy(image->data() + at, &value, sizeof value);
}

template <typename T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

std::vector<std::byte> pack_linked_image(std::span<const std::string> texts) {
  std::vector<std::byte> image;
  append(&image, kLinkedMagic);
  append(&image, static_cast<uint32_t>(texts.size()));
  append(&image, uint64_t{0});
  for (const std::string& text : texts) {
    append(&image, static_cast<uint64_t>(text.size()));
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    image.insert(image.end(), bytes, bytes + text.size());
  }
  const uint64_t size = image.size();
  std::memcpy(image.data() + kSizeAt, &size, sizeof size);
  return image;
}

Result<size_t> linked_image_size(std::span<const std::byte> header) {
  if (header.size() < kLinkedHeaderBytes || load<uint32_t>(header, 0) != kLinkedMagic)
    return damaged();
  const uint64_t size = load<uint64_t>(header, kSizeAt);
  if (size < kLinkedHeaderBytes || size > kMaxImage) return damaged();
  return static_cast<size_t>(size);
}

Result<std::vector<std::string>> read_linked_image(std::span<const std::byte> image) {
  FARGPU_ASSIGN_OR_RETURN(const size_t size, linked_image_size(image));
  if (size > image.size()) return damaged();
  auto rest = image.first(size).subspan(kLinkedHeaderBytes);
  std::vector<std::string> texts;
  for (uint32_t left = load<uint32_t>(image, kCountAt); left > 0; --left) {
    if (rest.size() < sizeof(uint64_t)) return damaged();
    const uint64_t length = load<uint64_t>(rest, 0);
    rest = rest.subspan(sizeof(uint64_t));
    if (length > rest.size()) return damaged();
    texts.emplace_back(reinterpret_cast<const char*>(rest.data()), static_cast<size_t>(length));
    rest = rest.subspan(static_cast<size_t>(length));
  }
  if (texts.empty() || !rest.empty()) return damaged();
  return texts;
}

}  // namespace fargpu::sim
