#include "common/fatbin/fatbin.h"

#include <fmt/core.h>

#include <cstring>

namespace fargpu {
namespace {

// Offsets in the container's header and in an entry's header.
constexpr size_t kHeaderSizeAt = 6, kBodySizeAt = 8;
constexpr size_t kEntryHeaderSizeAt = 4, kPayloadSizeAt = 8, kCompressedSizeAt = 16, kArchAt = 28,
                 kFlagsAt = 40, kUncompressedSizeAt = 56;
constexpr size_t kMinEntryHeader = 64;
// A larger container is an attack or damage, not a program.
constexpr uint64_t kMaxContainer = uint64_t{4} << 30;

Status damaged(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "damaged fat binary: " + what);
}

template <typename T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

Result<size_t> fatbin_size(std::span<const std::byte> header) {
  if (header.size() < kFatbinHeaderBytes) return damaged("shorter than its header");
  if (load<uint32_t>(header, 0) != kFatbinMagic) return damaged("wrong magic number");
  const uint16_t header_bytes = load<uint16_t>(header, kHeaderSizeAt);
  const uint64_t body = load<uint64_t>(header, kBodySizeAt);
  if (header_bytes < kFatbinHeaderBytes)
    return damaged(fmt::format("header of {} bytes", header_bytes));
  if (body > kMaxContainer) return damaged(fmt::format("body of {} bytes", body));
  return static_cast<size_t>(header_bytes + body);
}

Result<std::vector<FatbinEntry>> read_fatbin(std::span<const std::byte> container) {
  FARGPU_ASSIGN_OR_RETURN(const size_t size, fatbin_size(container));
  if (size > container.size())
    return damaged(fmt::format("{} bytes where {} are announced", container.size(), size));
  auto rest = container.subspan(load<uint16_t>(container, kHeaderSizeAt));
  rest = rest.first(size - load<uint16_t>(container, kHeaderSizeAt));
  std::vector<FatbinEntry> entries;
  while (!rest.empty()) {
    if (rest.size() < kMinEntryHeader)
      return damaged(fmt::format("{} bytes after the last entry", rest.size()));
    const uint32_t header_bytes = load<uint32_t>(rest, kEntryHeaderSizeAt);
    const uint64_t payload_bytes = load<uint64_t>(rest, kPayloadSizeAt);
    if (header_bytes < kMinEntryHeader || header_bytes > rest.size()) {
      return damaged(fmt::format("entry header of {} bytes", header_bytes));
    }
    if (payload_bytes > rest.size() - header_bytes) {
      return damaged(
          fmt::format("entry of {} bytes with {} left", payload_bytes, rest.size() - header_bytes));
    }
    FatbinEntry entry;
    entry.kind = load<uint16_t>(rest, 0);
    entry.arch = load<uint32_t>(rest, kArchAt);
    entry.flags = load<uint64_t>(rest, kFlagsAt);
    entry.uncompressed_bytes = load<uint64_t>(rest, kUncompressedSizeAt);
    entry.payload = rest.subspan(header_bytes, static_cast<size_t>(payload_bytes));
    if ((entry.flags & (kFatbinLz4 | kFatbinZstd)) != 0) {
      // The payload is padded; this is what the compressor wrote.
      const uint32_t compressed = load<uint32_t>(rest, kCompressedSizeAt);
      if (compressed > payload_bytes)
        return damaged(fmt::format("{} compressed bytes in {}", compressed, payload_bytes));
      entry.payload = entry.payload.first(compressed);
    }
    entry.whole = rest.first(header_bytes + static_cast<size_t>(payload_bytes));
    entries.push_back(entry);
    rest = rest.subspan(entry.whole.size());
  }
  return entries;
}

std::vector<std::byte> fatbin_header(std::span<const std::byte> container, uint64_t body_bytes) {
  const auto header = container.first(load<uint16_t>(container, kHeaderSizeAt));
  std::vector<std::byte> made(header.begin(), header.end());
  std::memcpy(made.data() + kBodySizeAt, &body_bytes, sizeof body_bytes);
  return made;
}

}  // namespace fargpu
