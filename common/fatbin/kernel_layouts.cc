#include "common/fatbin/kernel_layouts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "common/fatbin/contents.h"
#include "common/fatbin/prelinked.h"

namespace fargpu {
namespace {

// No parameter is larger, and no kernel has more.
constexpr uint64_t kMaxParameterBytes = 32768;
constexpr size_t kMaxParameters = 4096;
// Larger entries are not unpacked to count their variables. CUDA's largest one has 105 MB.
constexpr uint64_t kMostUnpacked = uint64_t{1} << 30;

// Of a parameter that cannot be read: the kernel is known, and no more.
void add(KernelLayouts& layouts, std::string_view name, std::optional<ParameterLayout> layout) {
  auto& known = layouts.kernels[std::string(name)];
  if (layout && std::ranges::find(known, *layout) == known.end())
    known.push_back(std::move(*layout));
}

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
  uint32_t link = 0;
};

std::optional<std::string_view> contents(std::string_view elf, const Section& section) {
  if (section.offset > elf.size() || section.bytes > elf.size() - section.offset)
    return std::nullopt;
  return elf.substr(section.offset, section.bytes);
}

// For each section with its name; false: the file is damaged, or no code for a GPU.
template <typename See>
bool for_each_section(std::string_view elf, See&& see) {
  constexpr uint64_t kMachineAt = 0x12, kSectionsAt = 0x28, kSectionBytesAt = 0x3a, kCountAt = 0x3c,
                     kNamesAt = 0x3e;
  constexpr uint16_t kCuda = 190, kElsewhere = 0xffff;
  const auto table = load<uint64_t>(elf, kSectionsAt);
  const auto machine = load<uint16_t>(elf, kMachineAt), step = load<uint16_t>(elf, kSectionBytesAt),
             few = load<uint16_t>(elf, kCountAt), names_at = load<uint16_t>(elf, kNamesAt);
  if (!names_at || *machine != kCuda || *table > elf.size()) return false;
  const auto section = [&](uint64_t index) {
    return index > elf.size() ? std::nullopt : load<Section>(elf, *table + index * *step);
  };
  // The first section has the numbers that do not fit into the header.
  const auto first = section(0);
  if (!first) return false;
  const uint64_t count = *few != 0 ? *few : first->bytes;
  const auto names_section = section(*names_at != kElsewhere ? *names_at : first->link);
  if (!names_section || *step == 0) return false;
  const auto names = contents(elf, *names_section);
  if (!names) return false;
  for (uint64_t i = 0; i < count; ++i) {
    const auto each = section(i);
    if (!each) return false;
    if (each->name > names->size()) continue;
    const std::string_view rest = names->substr(each->name);
    see(rest.substr(0, rest.find('\0')), *each);
  }
  return true;
}

// The section's attributes: a format, a number and, by the format, a value or so many bytes.
std::optional<ParameterLayout> read_attributes(std::string_view info) {
  constexpr uint8_t kWithBytes = 4, kRequiredBlock = 0x10, kParameter = 0x17, kParameter2 = 0x45;
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
    if (number == kRequiredBlock) {
      const auto block = load<std::array<unsigned, 3>>(value, 0);
      if (!block) return std::nullopt;
      layout.required_block = *block;
    }
    if (number != kParameter && number != kParameter2) continue;
    if (value.size() < kParameterBytes) return std::nullopt;
    const auto ordinal = *load<uint16_t>(value, kOrdinalAt);
    const auto word = *load<uint32_t>(value, kSizeAt);
    const uint32_t size = number == kParameter ? word >> 18 : word & 0xffffff;
    if (ordinal >= kMaxParameters || size > kMaxParameterBytes) return std::nullopt;
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

void read_cubin(std::string_view elf, KernelLayouts& layouts) {
  constexpr std::string_view kPrefix = ".nv.info.";
  const bool whole = for_each_section(elf, [&](std::string_view name, const Section& section) {
    const auto bytes = contents(elf, section);
    if (bytes && name.starts_with(kPrefix))
      add(layouts, name.substr(kPrefix.size()), read_attributes(*bytes));
  });
  if (!whole) layouts.has_more = true;
}

std::optional<uint64_t> variables_of_cubin(std::string_view elf) {
  uint64_t sum = 0;
  const bool whole = for_each_section(elf, [&](std::string_view name, const Section& section) {
    const bool counts = name.starts_with(".nv.global") || name.starts_with(".nv.constant");
    if (counts && __builtin_add_overflow(sum, section.bytes, &sum)) sum = UINT64_MAX;
  });
  return whole ? std::optional(sum) : std::nullopt;
}

// --- PTX

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '.' ||
         c == '%';
}

// Words, texts in quotes and single other characters, without comments.
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
    else if (text_[begin] == '"')
      at_ = std::min(text_.find('"', at_), text_.size() - 1) + 1;
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
  const int base = word.starts_with('0') ? 8 : 10;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
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

// Of .v2, .v4 and .v8; 0: another word.
uint64_t elements_of_vector(std::string_view word) {
  return word.size() == 3 && word.starts_with(".v") ? number(word.substr(2)).value_or(0) : 0;
}

bool is_space_of_pointer(std::string_view word) {
  return word == ".global" || word == ".const" || word == ".shared" || word == ".local";
}

// What stands between the brackets behind a kernel's name.
std::optional<ParameterLayout> read_parameters(Words& words) {
  ParameterLayout layout;
  uint64_t end = 0, type = 0, alignment = 0, count = 1, elements = 1;
  bool begun = false;
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word == ".param" || word == "(") {
      begun = word == ".param";
      type = alignment = 0;
      count = elements = 1;
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
      if (begun) {
        const uint64_t bytes = type * elements * count;
        const uint64_t unit = alignment != 0 ? alignment : type * elements;
        if (bytes == 0) return std::nullopt;
        const uint64_t offset = (end + unit - 1) / unit * unit;
        end = offset + bytes;
        if (end > kMaxParameterBytes || layout.sizes.size() >= kMaxParameters) return std::nullopt;
        layout.offsets.push_back(static_cast<unsigned>(offset));
        layout.sizes.push_back(static_cast<unsigned>(bytes));
        begun = false;
      }
      if (word == ")") return layout;
    } else if (const uint64_t bytes = bytes_of_type(word); bytes != 0) {
      type = bytes;
    } else if (const uint64_t several = elements_of_vector(word); several != 0) {
      elements = several;
    } else if (word.starts_with('.') && !is_space_of_pointer(word)) {
      return std::nullopt;  // .texref, for instance
    }
  }
  return std::nullopt;
}

// Behind ".reqntid": up to three numbers; 0: they are none. `word`: the first one behind them.
std::array<unsigned, 3> read_block(Words& words, std::string_view* word) {
  std::array<unsigned, 3> block{1, 1, 1};
  for (unsigned& size : block) {
    *word = words.next();
    size = static_cast<unsigned>(number(*word).value_or(0));
    if (size == 0) return {};
    *word = words.next();
    if (*word != ",") break;
  }
  return block;
}

// Behind ".entry".
void read_kernel(Words& words, KernelLayouts& layouts) {
  const std::string_view name = words.next();
  if (name.empty()) return;
  std::string_view word = words.next();
  std::optional<ParameterLayout> layout = ParameterLayout();
  if (word == "(") {
    layout = read_parameters(words);
    word = words.next();
  }
  while (layout && !word.empty() && word != "{" && word != ";") {
    if (word == ".reqntid")
      layout->required_block = read_block(words, &word);
    else
      word = words.next();
  }
  add(layouts, name, std::move(layout));
}

// What stands before that place in its line.
std::string_view line_before(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  return before.substr(before.rfind('\n') + 1);
}

// Calls see(words) with the words behind each `keyword`, while it returns true. Texts have
// megabytes: words are looked for, and read one by one only where there are comments of several
// lines, or quotes before a keyword in its line.
template <typename See>
void for_each(std::string_view text, std::string_view keyword, See&& see) {
  bool one_by_one = text.find("/*") != text.npos;
  for (size_t at = text.find(keyword); at != text.npos && !one_by_one;
       at = text.find(keyword, at + 1)) {
    if (at != 0 && is_name(text[at - 1])) continue;
    const std::string_view line = line_before(text, at);
    one_by_one = line.find('"') != line.npos;
    if (one_by_one || line.find("//") != line.npos) continue;
    Words words(text.substr(at));
    if (words.next() == keyword && !see(words)) return;
  }
  if (!one_by_one) return;
  Words words(text);
  for (std::string_view word = words.next(); !word.empty(); word = words.next())
    if (word == keyword && !see(words)) return;
}

void read_ptx(std::string_view text, KernelLayouts& layouts) {
  text = text.substr(0, text.find('\0'));
  // So does every text begin; another form is not for us.
  if (Words(text).next() != ".version") layouts.has_more = true;
  for_each(text, ".entry", [&layouts](Words& words) {
    read_kernel(words, layouts);
    return true;
  });
}

// Behind ".global" or ".const": one variable, or several, up to the semicolon. 0 for the space of a
// parameter's pointer, behind which no variable comes. nullopt: a size that is no plain number.
std::optional<uint64_t> declared_bytes(Words& words) {
  uint64_t sum = 0, type = 0, elements = 1, count = 1, in_braces = 0, listed = 1;
  bool has_extent = true;
  const auto end_variable = [&] {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, has_extent ? 1 : listed, &count) ||
        __builtin_mul_overflow(type * elements, count, &bytes) ||
        __builtin_add_overflow(sum, bytes, &sum))
      sum = UINT64_MAX;
    count = listed = 1;
    has_extent = true;
  };
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word == ";") {
      end_variable();
      return sum;
    }
    if (word == ".attribute") {
      while (!word.empty() && word != ")") word = words.next();
    } else if (word == "{" || word == "}") {
      in_braces += word == "{" ? 1 : -1;
    } else if (in_braces != 0) {
      if (word == ",") ++listed;
    } else if (word == ",") {
      if (type == 0) return 0;
      end_variable();
    } else if (word == ")" && type == 0) {
      return 0;
    } else if (word == ".param" || word == "<") {
      return type == 0 ? std::optional<uint64_t>(0) : std::nullopt;
    } else if (word == "[") {
      word = words.next();
      if (word == "]") {
        has_extent = false;
        continue;
      }
      const auto extent = number(word);
      if (!extent || words.next() != "]") return std::nullopt;
      if (__builtin_mul_overflow(count, *extent, &count)) count = UINT64_MAX;
    } else if (const uint64_t bytes = bytes_of_type(word); bytes != 0) {
      type = bytes;
    } else if (const uint64_t several = elements_of_vector(word); several != 0) {
      elements = several;
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> variables_of_code(std::string_view code) {
  if (code.starts_with(kElfMagic)) return variables_of_cubin(code);
  code = code.substr(0, code.find('\0'));
  std::optional<uint64_t> sum = 0;
  for (const std::string_view space : {".global", ".const"}) {
    for_each(code, space, [&sum](Words& words) {
      const auto bytes = declared_bytes(words);
      if (!bytes || __builtin_add_overflow(*sum, *bytes, &*sum)) sum.reset();
      return sum.has_value();
    });
    if (!sum) break;
  }
  return sum;
}

void read_code(std::string_view code, KernelLayouts& layouts) {
  if (code.starts_with(kElfMagic))
    read_cubin(code, layouts);
  else
    read_ptx(code, layouts);
}

bool is(const FatbinEntry& entry, EntryKind kind) {
  return entry.kind == static_cast<uint16_t>(kind);
}

// Whether a driver finds machine code there, and compiles nothing.
bool is_machine_code_for(const FatbinEntry& entry, unsigned capability) {
  return is(entry, EntryKind::kCubin) && entry.arch / 10 == capability / 10 &&
         entry.arch <= capability;
}

bool is_code(const FatbinEntry& entry) {
  return is(entry, EntryKind::kPtx) || is(entry, EntryKind::kCubin);
}

}  // namespace

void read_kernel_layouts(std::span<const std::byte> image, KernelLayouts& layouts) {
  if (const auto containers = read_prelinked(image); containers.ok() && !containers->empty()) {
    for (const auto& container : *containers) read_kernel_layouts(container, layouts);
    return;
  }
  const std::string_view code(reinterpret_cast<const char*>(image.data()), image.size());
  const auto magic = load<uint32_t>(code, 0);
  if (!magic || *magic != kFatbinMagic) return read_code(code, layouts);
  const auto entries = read_fatbin(image);
  if (!entries.ok()) {
    layouts.has_more = true;
    return;
  }
  for (const FatbinEntry& entry : *entries) {
    if (!is_code(entry)) {
      layouts.has_more = true;
      continue;
    }
    const auto contents = entry_contents(entry);
    if (contents.ok())
      read_code(*contents, layouts);
    else
      layouts.has_more = true;
  }
}

std::optional<uint64_t> variable_bytes(std::span<const std::byte> image, unsigned capability) {
  if (const auto containers = read_prelinked(image); containers.ok() && !containers->empty()) {
    // The linked one, or all the others.
    std::optional<uint64_t> linked = variable_bytes(containers->front(), capability), others = 0;
    for (const auto& container : std::span(*containers).subspan(1)) {
      const auto bytes = variable_bytes(container, capability);
      if (!bytes || __builtin_add_overflow(*others, *bytes, &*others)) return std::nullopt;
    }
    return linked ? std::optional(std::max(*linked, *others)) : std::nullopt;
  }
  const std::string_view code(reinterpret_cast<const char*>(image.data()), image.size());
  const auto magic = load<uint32_t>(code, 0);
  if (!magic || *magic != kFatbinMagic) return variables_of_code(code);
  const auto entries = read_fatbin(image);
  if (!entries.ok()) return std::nullopt;
  const auto fits = [capability](const FatbinEntry& entry) {
    return is_machine_code_for(entry, capability);
  };
  const bool has_code = std::ranges::any_of(*entries, fits);
  uint64_t most = 0;
  for (const FatbinEntry& entry : *entries) {
    if (!(has_code ? fits(entry) : is(entry, EntryKind::kPtx))) continue;
    if (entry.uncompressed_bytes > kMostUnpacked) return std::nullopt;
    const auto contents = entry_contents(entry);
    const auto bytes = contents.ok() ? variables_of_code(*contents) : std::nullopt;
    if (!bytes) return std::nullopt;
    most = std::max(most, *bytes);
  }
  return most;
}

uint64_t ptx_bytes(std::span<const std::byte> image, unsigned capability) {
  uint64_t sum = 0;
  if (const auto containers = read_prelinked(image); containers.ok() && !containers->empty()) {
    for (const auto& container : *containers) {
      if (__builtin_add_overflow(sum, ptx_bytes(container, capability), &sum)) return UINT64_MAX;
    }
    return sum;
  }
  const std::string_view code(reinterpret_cast<const char*>(image.data()), image.size());
  const auto magic = load<uint32_t>(code, 0);
  if (!magic || *magic != kFatbinMagic) return code.starts_with(kElfMagic) ? 0 : image.size();
  const auto entries = read_fatbin(image);
  if (!entries.ok()) return 0;
  for (const FatbinEntry& entry : *entries) {
    if (is_machine_code_for(entry, capability)) return 0;
    if (is(entry, EntryKind::kPtx))
      sum = std::max({sum, entry.uncompressed_bytes, uint64_t{entry.payload.size()}});
  }
  return sum;
}

}  // namespace fargpu
