#include "server/image/kernel_parameters.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/fatbin/contents.h"
#include "common/fatbin/prelinked.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::server {
namespace {

// No parameter is larger.
constexpr uint64_t kMaxParameterBytes = 32768;

template <typename T>
std::optional<T> load(std::string_view bytes, uint64_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// --- cubins

struct Section {
  uint32_t name = 0, type = 0;
  uint64_t flags = 0, address = 0, offset = 0, bytes = 0;
};

std::optional<std::string_view> contents(std::string_view elf, const Section& section) {
  if (section.offset > elf.size() || section.bytes > elf.size() - section.offset)
    return std::nullopt;
  return elf.substr(section.offset, section.bytes);
}

// For each section with its name; false: the file is damaged.
template <typename See>
bool for_each_section(std::string_view elf, See&& see) {
  constexpr uint64_t kSectionsAt = 0x28, kSectionBytesAt = 0x3a, kCountAt = 0x3c, kNamesAt = 0x3e;
  const auto table = load<uint64_t>(elf, kSectionsAt);
  const auto step = load<uint16_t>(elf, kSectionBytesAt), count = load<uint16_t>(elf, kCountAt),
             names_index = load<uint16_t>(elf, kNamesAt);
  if (!names_index || *table > elf.size()) return false;
  const auto section = [&](uint16_t index) {
    return load<Section>(elf, *table + uint64_t{index} * *step);
  };
  const auto names_section = section(*names_index);
  if (!names_section) return false;
  const auto names = contents(elf, *names_section);
  if (!names) return false;
  for (uint16_t i = 0; i < *count; ++i) {
    const auto each = section(i);
    if (!each) return false;
    if (each->name > names->size()) continue;
    const std::string_view rest = names->substr(each->name);
    const auto bytes = contents(elf, *each);
    if (bytes) see(rest.substr(0, rest.find('\0')), *bytes);
  }
  return true;
}

// The section's attributes: a format, a number and, by the format, a value or so many bytes.
std::optional<ParameterLayout> read_attributes(std::string_view info) {
  constexpr uint8_t kWithBytes = 4, kParameter = 0x17, kParameter2 = 0x45;
  constexpr uint64_t kOrdinalAt = 4, kOffsetAt = 6, kSizeAt = 8, kParameterBytes = 12;
  ParameterLayout layout;
  for (uint64_t at = 0; at + 4 <= info.size(); at += 4) {
    const auto format = static_cast<uint8_t>(info[at]);
    const auto number = static_cast<uint8_t>(info[at + 1]);
    if (format != kWithBytes) continue;
    const auto bytes = *load<uint16_t>(info, at + 2);
    if (bytes > info.size() - at - 4) return std::nullopt;
    const std::string_view value = info.substr(at + 4, bytes);
    at += bytes;
    if (number != kParameter && number != kParameter2) continue;
    if (value.size() < kParameterBytes) return std::nullopt;
    const auto ordinal = *load<uint16_t>(value, kOrdinalAt);
    const auto word = *load<uint32_t>(value, kSizeAt);
    const uint32_t size = number == kParameter ? word >> 18 : word & 0xffffff;
    if (ordinal >= schema::kMaxParameters || size > kMaxParameterBytes) return std::nullopt;
    if (layout.offsets.size() <= ordinal) {
      layout.offsets.resize(ordinal + 1u);
      layout.sizes.resize(ordinal + 1u);
    }
    layout.offsets[ordinal] = *load<uint16_t>(value, kOffsetAt);
    layout.sizes[ordinal] = size;
  }
  // The last one is the first in the section: an ordinal that is missing means damage.
  if (std::ranges::find(layout.sizes, 0u) != layout.sizes.end()) return std::nullopt;
  return layout;
}

KernelLayouts layouts_in_cubin(std::string_view elf) {
  constexpr std::string_view kPrefix = ".nv.info.";
  KernelLayouts layouts;
  for_each_section(elf, [&](std::string_view name, std::string_view bytes) {
    if (!name.starts_with(kPrefix)) return;
    if (auto layout = read_attributes(bytes))
      layouts[std::string(name.substr(kPrefix.size()))] = std::move(*layout);
  });
  return layouts;
}

// --- PTX

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '.' ||
         c == '%';
}

// Words and single other characters, without comments.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}
  // Empty: the end.
  std::string_view next() {
    skip();
    if (at_ >= text_.size() || text_[at_] == '\0') return {};
    const size_t begin = at_++;
    if (is_name(text_[begin]))
      while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

 private:
  void skip() {
    while (at_ < text_.size()) {
      const std::string_view rest = text_.substr(at_);
      if (std::isspace(static_cast<unsigned char>(rest[0])) != 0) {
        ++at_;
      } else if (rest.starts_with("//")) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (rest.starts_with("/*")) {
        const size_t end = text_.find("*/", at_ + 2);
        at_ = end == std::string_view::npos ? text_.size() : end + 2;
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::optional<uint64_t> number(std::string_view word) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// .b8, .u16, .f32, .f16x2 and the like; 0: no type.
uint64_t bytes_of_type(std::string_view word) {
  if (word.size() < 3 || word[0] != '.' || std::strchr("busf", word[1]) == nullptr) return 0;
  if (word == ".f16x2" || word == ".bf16x2") return 4;
  const auto bits = number(word.substr(word.starts_with(".bf") ? 3 : 2));
  return bits && (*bits == 8 || *bits == 16 || *bits == 32 || *bits == 64 || *bits == 128)
             ? *bits / 8
             : 0;
}

// What stands between the brackets behind a kernel's name.
std::optional<ParameterLayout> read_parameters(Words& words) {
  ParameterLayout layout;
  uint64_t end = 0, type = 0, alignment = 0, count = 1;
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word == ".param" || word == "(") {
      type = alignment = 0;
      count = 1;
    } else if (word == ".align") {
      const auto value = number(words.next());
      // What .ptr says is about the memory that the parameter points to.
      if (!value || *value == 0 || *value > kMaxParameterBytes) return std::nullopt;
      if (alignment == 0) alignment = *value;
    } else if (word == ".ptr") {
      if (alignment == 0) alignment = type;
    } else if (word == "[") {
      const auto value = number(words.next());
      if (!value || *value > kMaxParameterBytes) return std::nullopt;
      count = *value;
    } else if (word == "," || word == ")") {
      if (type != 0) {
        const uint64_t unit = alignment != 0 ? alignment : type;
        const uint64_t offset = (end + unit - 1) / unit * unit;
        end = offset + type * count;
        if (end > kMaxParameterBytes || layout.sizes.size() >= schema::kMaxParameters)
          return std::nullopt;
        layout.offsets.push_back(static_cast<unsigned>(offset));
        layout.sizes.push_back(static_cast<unsigned>(type * count));
        type = 0;
      }
      if (word == ")") return layout;
    } else if (const uint64_t bytes = bytes_of_type(word); bytes != 0) {
      type = bytes;
    }
  }
  return std::nullopt;
}

KernelLayouts layouts_in_ptx(std::string_view text) {
  KernelLayouts layouts;
  Words words(text);
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word != ".entry") continue;
    const std::string name(words.next());
    if (name.empty()) break;
    if (words.next() != "(") {
      layouts[name] = {};
    } else if (auto layout = read_parameters(words)) {
      layouts[name] = std::move(*layout);
    }
  }
  return layouts;
}

KernelLayouts layouts_in(std::string_view code) {
  return code.starts_with(kElfMagic) ? layouts_in_cubin(code) : layouts_in_ptx(code);
}

}  // namespace

KernelLayouts layouts_in_image(std::span<const std::byte> image) {
  if (const auto containers = read_prelinked(image); containers.ok() && !containers->empty()) {
    KernelLayouts layouts;
    for (const auto& container : *containers) layouts.merge(layouts_in_image(container));
    return layouts;
  }
  const std::string_view code(reinterpret_cast<const char*>(image.data()), image.size());
  const auto magic = load<uint32_t>(code, 0);
  if (!magic || *magic != kFatbinMagic) return layouts_in(code);
  KernelLayouts layouts;
  const auto entries = read_fatbin(image);
  if (!entries.ok()) return layouts;
  // Entries are the same kernels for different GPUs; what one lacks another may have.
  for (const FatbinEntry& entry : *entries) {
    const auto contents = entry_contents(entry);
    if (contents.ok()) layouts.merge(layouts_in(*contents));
  }
  return layouts;
}

}  // namespace fargpu::server
