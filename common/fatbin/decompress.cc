#include "common/fatbin/decompress.h"

#include <fmt/core.h>
#include <lz4.h>
#include <zstd.h>

#include <limits>

namespace fargpu {
namespace {

Status failed(const char* method, const std::string& why) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("damaged fat binary: {}: {}", method, why));
}

// No method packs better than this; a larger promise would only make us allocate for nothing.
constexpr size_t kMaxRatio = 32768;

bool plausible(std::span<const std::byte> compressed, size_t bytes) {
  return bytes / kMaxRatio <= compressed.size();
}

}  // namespace

Result<std::string> decompress_zstd(std::span<const std::byte> compressed, size_t bytes) {
  if (!plausible(compressed, bytes))
    return failed("zstd", fmt::format("{} bytes from {}", bytes, compressed.size()));
  std::string text(bytes, '\0');
  const size_t written =
      ZSTD_decompress(text.data(), text.size(), compressed.data(), compressed.size());
  if (ZSTD_isError(written)) return failed("zstd", ZSTD_getErrorName(written));
  if (written != bytes)
    return failed("zstd", fmt::format("{} bytes instead of {}", written, bytes));
  return text;
}

Result<std::string> decompress_lz4(std::span<const std::byte> compressed, size_t bytes) {
  constexpr size_t kMax = std::numeric_limits<int>::max();
  if (!plausible(compressed, bytes) || bytes > kMax || compressed.size() > kMax) {
    return failed("LZ4", fmt::format("{} bytes from {}", bytes, compressed.size()));
  }
  std::string text(bytes, '\0');
  const int written =
      LZ4_decompress_safe(reinterpret_cast<const char*>(compressed.data()), text.data(),
                          static_cast<int>(compressed.size()), static_cast<int>(bytes));
  if (written < 0 || static_cast<size_t>(written) != bytes) {
    return failed("LZ4", fmt::format("{} bytes instead of {}", written, bytes));
  }
  return text;
}

}  // namespace fargpu
