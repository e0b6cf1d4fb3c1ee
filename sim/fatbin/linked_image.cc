#include "sim/fatbin/linked_image.h"

#include <cstring>

namespace fargpu::sim {
namespace {

// Of the ELF header and of the one program header behind it.
constexpr uint32_t kElfMagic = 0x464C457F;
constexpr unsigned char kClass64 = 2, kLittleEndian = 1, kElfVersion = 1;
constexpr uint16_t kExecutable = 2, kCudaMachine = 190, kProgramHeaderBytes = 56;
constexpr uint32_t kNote = 4;
constexpr size_t kTypeAt = 16, kMachineAt = 18, kVersionAt = 20, kProgramHeadersAt = 32,
                 kHeaderBytesAt = 52, kProgramHeaderBytesAt = 54, kProgramHeaderCountAt = 56;
constexpr size_t kSegmentAt = kElfHeaderBytes;
constexpr size_t kSegmentOffsetAt = kSegmentAt + 8, kSegmentBytesAt = kSegmentAt + 32;
// Behind them.
constexpr size_t kMagicAt = kSegmentAt + kProgramHeaderBytes;
constexpr size_t kCountAt = kMagicAt + 4, kTextsAt = kMagicAt + 8;
constexpr uint64_t kMaxImage = uint64_t{4} << 30;

Status damaged() {
  return Status(StatusCode::kInvalidArgument, "damaged image of the simulated linker");
}

template <typename T>
void put(std::vector<std::byte>* image, size_t at, T value) {
  if (image->size() < at + sizeof value) image->resize(at + sizeof value);
  std::memcpy(image->data() + at, &value, sizeof value);
}

template <typename T>
T load(const std::byte* bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes + at, sizeof value);
  return value;
}

}  // namespace

std::vector<std::byte> pack_linked_image(std::span<const std::string> texts) {
  std::vector<std::byte> image(kTextsAt);
  put(&image, 0, kElfMagic);
  put(&image, 4, kClass64);
  put(&image, 5, kLittleEndian);
  put(&image, 6, kElfVersion);
  put(&image, kTypeAt, kExecutable);
  put(&image, kMachineAt, kCudaMachine);
  put(&image, kVersionAt, uint32_t{kElfVersion});
  put(&image, kProgramHeadersAt, uint64_t{kSegmentAt});
  put(&image, kHeaderBytesAt, static_cast<uint16_t>(kElfHeaderBytes));
  put(&image, kProgramHeaderBytesAt, kProgramHeaderBytes);
  put(&image, kProgramHeaderCountAt, uint16_t{1});
  put(&image, kSegmentAt, kNote);
  put(&image, kSegmentOffsetAt, uint64_t{kMagicAt});
  put(&image, kMagicAt, kLinkedMagic);
  put(&image, kCountAt, static_cast<uint32_t>(texts.size()));
  for (const std::string& text : texts) {
    put(&image, image.size(), static_cast<uint64_t>(text.size()));
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    image.insert(image.end(), bytes, bytes + text.size());
  }
  put(&image, kSegmentBytesAt, static_cast<uint64_t>(image.size() - kMagicAt));
  return image;
}

size_t linked_image_size(const std::byte* file) {
  if (load<uint32_t>(file, 0) != kElfMagic || load<uint16_t>(file, kMachineAt) != kCudaMachine ||
      load<uint64_t>(file, kProgramHeadersAt) != kSegmentAt ||
      load<uint16_t>(file, kProgramHeaderCountAt) != 1)
    return 0;
  const uint64_t bytes = load<uint64_t>(file, kSegmentBytesAt);
  if (load<uint32_t>(file, kSegmentAt) != kNote ||
      load<uint64_t>(file, kSegmentOffsetAt) != kMagicAt || bytes < kTextsAt - kMagicAt ||
      bytes > kMaxImage || load<uint32_t>(file, kMagicAt) != kLinkedMagic)
    return 0;
  return kMagicAt + bytes;
}

Result<std::vector<std::string>> read_linked_image(std::span<const std::byte> image) {
  if (image.size() < kTextsAt) return damaged();
  const size_t size = linked_image_size(image.data());
  if (size == 0 || size > image.size()) return damaged();
  auto rest = image.first(size).subspan(kTextsAt);
  std::vector<std::string> texts;
  for (uint32_t left = load<uint32_t>(image.data(), kCountAt); left > 0; --left) {
    if (rest.size() < sizeof(uint64_t)) return damaged();
    const uint64_t length = load<uint64_t>(rest.data(), 0);
    rest = rest.subspan(sizeof(uint64_t));
    if (length > rest.size()) return damaged();
    texts.emplace_back(reinterpret_cast<const char*>(rest.data()), static_cast<size_t>(length));
    rest = rest.subspan(static_cast<size_t>(length));
  }
  if (texts.empty() || !rest.empty()) return damaged();
  return texts;
}

}  // namespace fargpu::sim
