#include "client/cli/program_file.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
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

// The dynamic section of a program's file. A 64-bit little-endian ELF file; of anything else it has
// nothing.
class Program {
 public:
  explicit Program(const std::string& path) : file_(path, std::ios::binary) {
    Elf64_Ehdr header;
    if (!file_ || !read_at(file_, 0, &header, sizeof header)) return;
    if (!is_elf(header) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_phentsize != sizeof(Elf64_Phdr)) {
      return;
    }
    segments_.resize(header.e_phnum);
    if (!read_at(file_, header.e_phoff, segments_.data(), segments_.size() * sizeof(Elf64_Phdr)))
      return;
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_DYNAMIC) look(segment);
    }
  }

  // Empty, too, where its text cannot be read.
  std::optional<std::string> rpath;

 private:
  void look(const Elf64_Phdr& dynamic) {
    constexpr size_t kMaxEntries = 4096;  // real programs have some dozens
    const size_t count = dynamic.p_filesz / sizeof(Elf64_Dyn);
    if (count > kMaxEntries) return;
    std::vector<Elf64_Dyn> entries(count);
    if (!read_at(file_, dynamic.p_offset, entries.data(), count * sizeof(Elf64_Dyn))) return;
    uint64_t texts = 0;
    std::optional<uint64_t> name;
    for (const Elf64_Dyn& entry : entries) {
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_RUNPATH) return;  // with it the loader ignores DT_RPATH
      if (entry.d_tag == DT_RPATH) name = entry.d_un.d_val;
      if (entry.d_tag == DT_STRTAB) texts = entry.d_un.d_ptr;
    }
    if (name) rpath = text_at(texts + *name);
  }

  std::string text_at(uint64_t address) {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type != PT_LOAD || address < segment.p_vaddr ||
          address - segment.p_vaddr >= segment.p_filesz)
        continue;
      file_.clear();
      file_.seekg(static_cast<std::streamoff>(segment.p_offset + (address - segment.p_vaddr)));
      constexpr size_t kLongest = 64u << 10;
      std::string text(kLongest, '\0');
      file_.read(text.data(), static_cast<std::streamsize>(text.size()));
      return text.c_str();
    }
    return {};
  }

  std::ifstream file_;
  std::vector<Elf64_Phdr> segments_;
};

// Programs that start others, but not in their own environment.
constexpr std::string_view kElsewhere[] = {"docker", "podman", "kubectl", "ssh", "sudo", "su"};

}  // namespace

bool has_rpath(const std::string& program) { return Program(program).rpath.has_value(); }

bool rpath_leads_to(const std::string& program, const std::string& library) {
  const auto rpath = Program(program).rpath;
  if (!rpath || rpath->empty()) return false;
  std::error_code error;
  const auto origin = std::filesystem::canonical(program, error).parent_path().string();
  std::istringstream folders(*rpath);
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const std::string name : {"${ORIGIN}", "$ORIGIN"}) {
      if (const size_t at = folder.find(name); at != std::string::npos)
        folder.replace(at, name.size(), origin);
    }
    if (!folder.empty() && std::filesystem::exists(folder + "/" + library, error)) return true;
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
