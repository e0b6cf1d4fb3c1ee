#include "common/fatbin/contents.h"

#include <fmt/core.h>

#include "common/fatbin/decompress.h"

namespace fargpu {
namespace {

constexpr uint64_t kMaxText = uint64_t{1} << 30;  // as of a container

Status damaged(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "damaged fat binary: " + what);
}

}  // namespace

Result<std::string> entry_contents(const FatbinEntry& entry) {
  if ((entry.flags & (kFatbinLz4 | kFatbinZstd)) == 0) {
    return std::string(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
  }
  if (entry.uncompressed_bytes > kMaxText) {
    return damaged(fmt::format("entry of {} bytes uncompressed", entry.uncompressed_bytes));
  }
  const auto size = static_cast<size_t>(entry.uncompressed_bytes);
  return (entry.flags & kFatbinZstd) != 0 ? decompress_zstd(entry.payload, size)
                                          : decompress_lz4(entry.payload, size);
}

}  // namespace fargpu
