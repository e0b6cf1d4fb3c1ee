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

Result<std::string> select_ptx(std::span<const FatbinEntry> entries, int compute_capability) {
  const FatbinEntry* best = nullptr;
  std::string present;
  for (const FatbinEntry& entry : entries) {
    const bool is_ptx = entry.kind == static_cast<uint16_t>(EntryKind::kPtx);
    const char* name = is_ptx                                                   ? "PTX"
                       : entry.kind == static_cast<uint16_t>(EntryKind::kCubin) ? "cubin"
                                                                                : "entry";
    present += fmt::format("{}{} sm_{}", present.empty() ? "" : ", ", name, entry.arch);
    if (!is_ptx || entry.arch > static_cast<uint32_t>(compute_capability)) continue;
    if (!best || entry.arch > best->arch) best = &entry;
  }
  if (!best) {
    return Status(StatusCode::kNotFound,
                  fmt::format("no PTX for sm_{} in the image (it has: {}); the simulated GPU runs "
                              "PTX only, compile with "
                              "-gencode arch=compute_XX,code=compute_XX",
                              compute_capability, present.empty() ? "nothing" : present));
  }
  FARGPU_ASSIGN_OR_RETURN(std::string text, entry_contents(*best));
  // The text is a C string in its entry; what follows its end is padding.
  if (const size_t end = text.find('\0'); end != std::string::npos) text.resize(end);
  return text;
}

}  // namespace fargpu
