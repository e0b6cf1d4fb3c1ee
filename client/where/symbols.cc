#include "client/where/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "common/base/descriptors.h"
#include "common/base/fd.h"

namespace fargpu::client::where {
namespace {

constexpr size_t kLongestName = 4096, kLongestShown = 200;

// A file in memory, while this object lives. Every place in it is checked.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const Fd file = descriptors::open_file(path.c_str(), O_RDONLY);
    struct stat about {};
    if (!file.valid() || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return;
    const auto bytes = static_cast<size_t>(about.st_size);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped == MAP_FAILED) return;
    all_ = {static_cast<const char*>(mapped), bytes};
  }
  ~MappedFile() {
    if (!all_.empty()) ::munmap(const_cast<char*>(all_.data()), all_.size());
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const char> bytes(uint64_t offset, uint64_t count) const {
    if (offset > all_.size() || count > all_.size() - offset) return {};
    return all_.subspan(offset, count);
  }
  // The complete entries; none if the table is not aligned.
  template <typename T>
  std::span<const T> table(uint64_t offset, uint64_t size) const {
    const std::span<const char> part = bytes(offset, size);
    if (part.empty() || offset % alignof(T) != 0) return {};
    return {reinterpret_cast<const T*>(part.data()), part.size() / sizeof(T)};
  }

 private:
  std::span<const char> all_;
};

std::string name_at(std::span<const char> texts, uint64_t offset) {
  if (offset >= texts.size()) return {};
  const char* const begin = texts.data() + offset;
  return {begin, ::strnlen(begin, std::min(kLongestName, texts.size() - offset))};
}

std::string find(const MappedFile& file, std::span<const Elf64_Shdr> sections, uint32_t type,
                 uint64_t address) {
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != type || section.sh_link >= sections.size()) continue;
    const Elf64_Shdr& texts = sections[section.sh_link];
    for (const Elf64_Sym& symbol : file.table<Elf64_Sym>(section.sh_offset, section.sh_size)) {
      const bool is_code = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != 0;
      if (is_code && address - symbol.st_value < symbol.st_size)
        return name_at(file.bytes(texts.sh_offset, texts.sh_size), symbol.st_name);
    }
  }
  return {};
}

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  std::string out = status == 0 && text != nullptr ? text.get() : name;
  if (out.size() > kLongestShown) out = out.substr(0, kLongestShown) + "...";
  return out;
}

}  // namespace

std::string function_in_file(const std::string& path, uint64_t address) {
  const MappedFile file(path);
  const auto headers = file.table<Elf64_Ehdr>(0, sizeof(Elf64_Ehdr));
  if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      headers[0].e_ident[EI_CLASS] != ELFCLASS64 || headers[0].e_shentsize != sizeof(Elf64_Shdr))
    return {};
  const auto sections =
      file.table<Elf64_Shdr>(headers[0].e_shoff, headers[0].e_shnum * sizeof(Elf64_Shdr));
  for (const uint32_t type : {SHT_SYMTAB, SHT_DYNSYM}) {
    if (const std::string name = find(file, sections, type, address); !name.empty())
      return readable(name);
  }
  return {};
}

}  // namespace fargpu::client::where
