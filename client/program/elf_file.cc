#include "client/program/elf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

namespace fargpu::scan {
namespace {

constexpr size_t kLongestName = 96;
constexpr size_t kChunk = 1 << 20;
// Far above what the largest libraries have.
constexpr uint64_t kMostTableBytes = 256u << 20;
constexpr uint64_t kMostDynamic = 1 << 16;
constexpr size_t kMostUndefined = 1 << 20;
constexpr uint64_t kMostSearched = uint64_t{16} << 30;

Status damaged(const char* what) {
  return {StatusCode::kInvalidArgument, std::string("damaged: ") + what};
}

Status too_large(const char* what) {
  return {StatusCode::kInvalidArgument, std::string(what) + " is larger than that of any library"};
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The name at `text`, which begins with "cu"; empty: there is none.
std::string_view name_at(std::string_view text) {
  if (text.size() < 3 || text[2] < 'A' || text[2] > 'Z') return {};
  size_t end = 3;
  while (end < text.size() && end <= kLongestName && is_name_character(text[end])) ++end;
  return end < text.size() && text[end] == '\0' ? text.substr(0, end) : std::string_view();
}

}  // namespace

Status ElfFile::read_at(uint64_t offset, void* out, uint64_t bytes) const {
  if (offset > size_ || bytes > size_ - offset) return damaged("it ends too early");
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(file_.get(), to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot be read", errno);
    if (got == 0) return damaged("it has become shorter");
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return {};
}

template <typename T>
Result<std::vector<T>> ElfFile::table(uint64_t offset, uint64_t count) const {
  if (count > size_ / sizeof(T)) return damaged("a table is larger than the file");
  if (count > kMostTableBytes / sizeof(T)) return too_large("a table");
  std::vector<T> entries(count);
  FARGPU_RETURN_IF_ERROR(read_at(offset, entries.data(), count * sizeof(T)));
  return entries;
}

Result<uint64_t> ElfFile::offset_of(uint64_t address, uint64_t bytes) const {
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type != PT_LOAD || address < segment.p_vaddr) continue;
    const uint64_t inside = address - segment.p_vaddr;
    if (inside > segment.p_filesz || bytes > segment.p_filesz - inside) continue;
    if (segment.p_offset > size_ || inside > size_ - segment.p_offset) continue;
    return segment.p_offset + inside;
  }
  return damaged("an address is not in the file");
}

Result<ElfFile> ElfFile::open(const std::string& path) {
  ElfFile file;
  file.file_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file.file_.valid() || ::fstat(file.file_.get(), &about) != 0)
    return system_error("cannot be opened", errno);
  if (!S_ISREG(about.st_mode)) return Status(StatusCode::kUnsupported, "no file");
  file.size_ = static_cast<uint64_t>(about.st_size);
  Elf64_Ehdr header{};
  if (file.size_ < sizeof header || !file.read_at(0, &header, sizeof header).ok() ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return Status(StatusCode::kUnsupported, "no ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return Status(StatusCode::kUnsupported, "an ELF file, but not of 64 bits, little-endian");
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN)
    return Status(StatusCode::kUnsupported, "neither a program nor a shared library");
  FARGPU_RETURN_IF_ERROR(file.read(header));
  return file;
}

Status ElfFile::read(const Elf64_Ehdr& header) {
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return damaged("its segments have a wrong size");
  FARGPU_ASSIGN_OR_RETURN(segments_, table<Elf64_Phdr>(header.e_phoff, header.e_phnum));
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type == PT_DYNAMIC) return read_undefined(header, segment);
  }
  return {};  // linked statically
}

Result<ElfFile::Dynamic> ElfFile::read_dynamic(const Elf64_Phdr& segment) const {
  constexpr uint64_t kEntries = 256;  // most files have fewer
  Dynamic dynamic;
  std::vector<Elf64_Dyn> entries;
  const uint64_t count = segment.p_filesz / sizeof(Elf64_Dyn);
  for (uint64_t i = 0; i < count; ++i) {
    if (i == kMostDynamic) return too_large("the dynamic section");
    if (i % kEntries == 0) {
      if (segment.p_offset > size_) return damaged("it ends too early");
      FARGPU_ASSIGN_OR_RETURN(entries, table<Elf64_Dyn>(segment.p_offset + i * sizeof(Elf64_Dyn),
                                                        std::min(kEntries, count - i)));
    }
    const Elf64_Dyn& entry = entries[i % kEntries];
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) dynamic.texts = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) dynamic.text_bytes = entry.d_un.d_val;
    if (entry.d_tag == DT_SYMTAB) dynamic.symbols = entry.d_un.d_ptr;
    if (entry.d_tag == DT_HASH) dynamic.hash = entry.d_un.d_ptr;
    if (entry.d_tag == DT_SYMENT && entry.d_un.d_val != sizeof(Elf64_Sym))
      return damaged("its symbols have a wrong size");
  }
  return dynamic;
}

// The dynamic section does not say it. The section headers do, where there are any; else the hash
// table, or the distance to the texts, which linkers put behind the symbols.
Result<uint64_t> ElfFile::count_symbols(const Elf64_Ehdr& header, const Dynamic& dynamic) const {
  if (header.e_shnum != 0 && header.e_shentsize == sizeof(Elf64_Shdr)) {
    if (auto sections = table<Elf64_Shdr>(header.e_shoff, header.e_shnum)) {
      for (const Elf64_Shdr& section : *sections) {
        if (section.sh_type == SHT_DYNSYM && section.sh_addr == dynamic.symbols)
          return section.sh_size / sizeof(Elf64_Sym);
      }
    }
  }
  if (dynamic.hash != 0) {
    uint32_t buckets_and_chains[2] = {};
    FARGPU_ASSIGN_OR_RETURN(const uint64_t at, offset_of(dynamic.hash, sizeof buckets_and_chains));
    FARGPU_RETURN_IF_ERROR(read_at(at, buckets_and_chains, sizeof buckets_and_chains));
    return buckets_and_chains[1];  // one chain for each symbol
  }
  if (dynamic.texts < dynamic.symbols) return damaged("nothing says how many symbols it has");
  return (dynamic.texts - dynamic.symbols) / sizeof(Elf64_Sym);
}

Status ElfFile::read_undefined(const Elf64_Ehdr& header, const Elf64_Phdr& segment) {
  FARGPU_ASSIGN_OR_RETURN(const Dynamic dynamic, read_dynamic(segment));
  if (dynamic.symbols == 0 || dynamic.texts == 0) return {};
  FARGPU_ASSIGN_OR_RETURN(const uint64_t count, count_symbols(header, dynamic));
  if (count > size_ / sizeof(Elf64_Sym)) return damaged("it has more symbols than bytes");
  FARGPU_ASSIGN_OR_RETURN(const uint64_t symbols_at,
                          offset_of(dynamic.symbols, count * sizeof(Elf64_Sym)));
  FARGPU_ASSIGN_OR_RETURN(const auto symbols, table<Elf64_Sym>(symbols_at, count));
  FARGPU_ASSIGN_OR_RETURN(const uint64_t texts_at, offset_of(dynamic.texts, dynamic.text_bytes));
  FARGPU_ASSIGN_OR_RETURN(const auto texts, table<char>(texts_at, dynamic.text_bytes));
  names_ = {texts_at, texts_at + dynamic.text_bytes};
  for (const Elf64_Sym& symbol : symbols)
    FARGPU_RETURN_IF_ERROR(add_undefined(symbol, {texts.data(), texts.size()}));
  return {};
}

Status ElfFile::add_undefined(const Elf64_Sym& symbol, std::string_view texts) {
  if (symbol.st_shndx != SHN_UNDEF || symbol.st_name == 0) return {};
  if (symbol.st_name >= texts.size()) return damaged("a symbol has no name");
  // Names may overlap: together they can be far longer than the file.
  const std::string_view text = texts.substr(symbol.st_name, kLongestName + 1);
  const size_t end = text.find('\0');
  if (end == std::string_view::npos && text.size() > kLongestName) return {};
  if (end == std::string_view::npos) return damaged("a symbol's name does not end");
  if (undefined_.size() == kMostUndefined) return too_large("the number of undefined symbols");
  undefined_.push_back(
      {std::string(text.substr(0, end)), ELF64_ST_BIND(symbol.st_info) == STB_WEAK});
  return {};
}

void ElfFile::visit_range(const Range& range, const std::function<void(std::string_view)>& visit,
                          Status& status) const {
  // Begins with the character before what has not been looked at.
  std::string text(1, '\0');
  for (uint64_t at = range.begin; at < range.end && status.ok();) {
    const uint64_t bytes = std::min<uint64_t>(kChunk, range.end - at);
    const size_t kept = text.size();
    text.resize(kept + bytes);
    status = read_at(at, text.data() + kept, bytes);
    if (!status.ok()) return;
    at += bytes;
    // A name that begins behind it may go on in the next chunk.
    const size_t limit = at == range.end ? text.size() : text.size() - kLongestName - 2;
    size_t place = 0;
    while ((place = text.find("cu", place + 1)) < limit) {
      if (is_name_character(text[place - 1])) continue;
      const auto name = name_at(std::string_view(text).substr(place));
      if (!name.empty()) visit(name);
    }
    if (at != range.end) text.erase(0, limit - 1);
  }
}

Status ElfFile::for_each_name(const std::function<void(std::string_view)>& visit) const {
  std::vector<Range> ranges;
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type != PT_LOAD || segment.p_offset >= size_) continue;
    const uint64_t bytes = std::min<uint64_t>(segment.p_filesz, size_ - segment.p_offset);
    ranges.push_back({segment.p_offset, segment.p_offset + bytes});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  uint64_t end = 0, bytes = 0;
  for (const Range& range : ranges) {
    bytes += range.end - std::clamp(end, range.begin, range.end);
    end = std::max(end, range.end);
  }
  if (bytes > kMostSearched) return too_large("what the loader maps");
  Status status;
  uint64_t done = 0;  // segments may overlap; nothing is looked at twice
  const auto visit_part = [&](uint64_t begin, uint64_t end) {
    if (begin < end && status.ok()) visit_range({begin, end}, visit, status);
  };
  for (const Range& range : ranges) {
    const uint64_t begin = std::max(done, range.begin);
    visit_part(begin, std::min(range.end, std::max(begin, names_.begin)));
    visit_part(std::max(begin, names_.end), range.end);
    done = std::max(done, range.end);
  }
  return status;
}

}  // namespace fargpu::scan
