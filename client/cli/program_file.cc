#include "client/cli/program_file.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

namespace fargpu::cli {

namespace {

bool read_at(std::ifstream& file, uint64_t offset, void* out, size_t bytes) {
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(static_cast<char*>(out), static_cast<std::streamsize>(bytes));
  return file.good();
}

bool is_elf(const Elf64_Ehdr& header) { return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0; }

// e_machine is at the same place in headers of 32 bits.
bool is_of_another_machine(const std::string& program) {
  std::ifstream file(program, std::ios::binary);
  Elf64_Ehdr header;
  if (!file || !read_at(file, 0, &header, sizeof(header)) || !is_elf(header)) return false;
  return header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64;
}

bool changes_user(const std::string& program) {
  struct stat about;
  if (::stat(program.c_str(), &about) != 0) return false;
  return ((about.st_mode & S_ISUID) != 0 && about.st_uid != ::geteuid()) ||
         ((about.st_mode & S_ISGID) != 0 && about.st_gid != ::getegid());
}

// Programs that start others, but not in their own environment.
constexpr std::string_view kElsewhere[] = {"docker", "podman", "kubectl", "ssh", "sudo", "su"};

}  // namespace

bool has_rpath(const std::string& program) {
  std::ifstream file(program, std::ios::binary);
  Elf64_Ehdr header;
  if (!file || !read_at(file, 0, &header, sizeof(header))) return false;
  if (!is_elf(header) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
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

std::string doubt_about(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  if (is_of_another_machine(program))
    return "'" + name + "' is not a program for x86-64, and cannot load fargpu's library";
  if (std::find(std::begin(kElsewhere), std::end(kElsewhere), name) != std::end(kElsewhere)) {
    return "what '" + name +
           "' starts does not get its environment, and so no remote GPUs: call fargpu run inside, "
           "as in '" +
           name + " ... fargpu run -- ./app'";
  }
  if (changes_user(program))
    return "'" + name + "' changes its user, so the loader does not look for fargpu's library";
  return {};
}

}  // namespace fargpu::cli
