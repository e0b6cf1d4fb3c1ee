#include "client/cli/elf_rpath.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <vector>

namespace fargpu::cli {

namespace {

bool read_at(std::ifstream& file, uint64_t offset, void* out, size_t bytes) {
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(static_cast<char*>(out), static_cast<std::streamsize>(bytes));
  return file.good();
}

}  // namespace

bool has_rpath(const std::string& program) {
  std::ifstream file(program, std::ios::binary);
  Elf64_Ehdr header;
  if (!file || !read_at(file, 0, &header, sizeof(header))) return false;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return false;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(file, header.e_phoff + i * sizeof(segment), &segment, sizeof(segment)))
      return false;
    if (segment.p_type != PT_DYNAMIC) continue;
    constexpr size_t kMaxEntries = 4096;  // real programs have some dozens
    size_t count = segment.p_filesz / sizeof(Elf64_Dyn);
    if (count > kMaxEntries) return false;
    std::vector<Elf64_Dyn> entries(count);
    if (!read_at(file, segment.p_offset, entries.data(), count * sizeof(Elf64_Dyn))) return false;
    bool rpath = false;
    for (const Elf64_Dyn& entry : entries) {
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_RUNPATH) return false;  // with it the loader ignores DT_RPATH
      rpath |= entry.d_tag == DT_RPATH;
    }
    return rpath;
  }
  return false;
}

}  // namespace fargpu::cli
