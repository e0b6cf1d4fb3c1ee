#include "sim/fatbin/image.h"

#include <fmt/core.h>

#include <cstring>

#include "common/fatbin/contents.h"
#include "common/fatbin/prelinked.h"
#include "sim/fatbin/linked_image.h"

namespace fargpu::sim {
namespace {

constexpr unsigned char kElfMagic[4] = {0x7f, 'E', 'L', 'F'};
constexpr size_t kMaxText = size_t{1} << 30;

Result<std::string> read_container(const void* container, int compute_capability) {
  const auto* bytes = static_cast<const std::byte*>(container);
  FARGPU_ASSIGN_OR_RETURN(const size_t size, fatbin_size({bytes, kFatbinHeaderBytes}));
  FARGPU_ASSIGN_OR_RETURN(const auto entries, read_fatbin({bytes, size}));
  return select_ptx(entries, compute_capability);
}

Result<std::vector<std::string>> read_wrapper(const void* image, int compute_capability) {
  FatbinWrapper wrapper;
  std::memcpy(&wrapper, image, sizeof wrapper);
  std::vector<std::string> texts;
  if (wrapper.linked == nullptr)
    return Status(StatusCode::kInvalidArgument,
                  "damaged fat binary: a wrapper without a container");
  Result<std::string> linked = read_container(wrapper.linked, compute_capability);
  if (linked.ok()) return std::vector<std::string>{std::move(*linked)};
  if (wrapper.version != FatbinWrapper::kWithPrelinked || wrapper.prelinked == nullptr)
    return linked.status();
  // Those without PTX for this GPU bring what the simulated GPU has itself (libcudadevrt).
  for (size_t i = 0; i < kMaxPrelinked && wrapper.prelinked[i] != nullptr; ++i) {
    Result<std::string> text = read_container(wrapper.prelinked[i], compute_capability);
    if (text.ok()) texts.push_back(std::move(*text));
  }
  if (texts.empty()) return linked.status();
  return texts;
}

}  // namespace

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

Result<std::vector<std::string>> read_image(const void* image, int compute_capability) {
  const auto* bytes = static_cast<const char*>(image);
  const size_t length = strnlen(bytes, sizeof(uint32_t));
  uint32_t magic = 0;
  // A text may be shorter than a magic number: look at no byte behind its NUL. No magic number
  // holds a NUL byte.
  std::memcpy(&magic, bytes, length);
  if (magic == kWrapperMagic) return read_wrapper(image, compute_capability);
  if (magic == kFatbinMagic) {
    FARGPU_ASSIGN_OR_RETURN(std::string text, read_container(image, compute_capability));
    return std::vector<std::string>{std::move(text)};
  }
  if (std::memcmp(&magic, kElfMagic, sizeof kElfMagic) == 0) {
    const auto* file = static_cast<const std::byte*>(image);
    if (const size_t size = linked_image_size(file); size > 0)
      return read_linked_image({file, size});
    return Status(StatusCode::kNotFound,
                  "the image is a cubin (machine code); the simulated GPU runs PTX only, load the "
                  "PTX instead");
  }
  const size_t text_length = strnlen(bytes, kMaxText);
  const std::string_view text(bytes, text_length);
  if (text_length == kMaxText || text.find(".version") == std::string_view::npos) {
    return Status(StatusCode::kInvalidArgument, "the image is neither a fat binary nor PTX text");
  }
  return std::vector<std::string>{std::string(text)};
}

}  // namespace fargpu::sim
