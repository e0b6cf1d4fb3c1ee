#include "client/program/program_file.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

// Another user, or capabilities: the loader then ignores the environment. Root has them all anyway.
bool gets_rights(const std::string& program) {
  struct stat about;
  if (::stat(program.c_str(), &about) != 0) return false;
  return ((about.st_mode & S_ISUID) != 0 && about.st_uid != ::geteuid()) ||
         ((about.st_mode & S_ISGID) != 0 && about.st_gid != ::getegid()) ||
         (::geteuid() != 0 && ::getxattr(program.c_str(), "security.capability", nullptr, 0) > 0);
}

// Whether the file has the text; of a large one its beginning only.
bool names(const std::string& program, std::string_view text) {
  constexpr size_t kMost = 256u << 20, kPiece = 1u << 20;
  std::ifstream file(program, std::ios::binary);
  std::string piece;
  for (size_t done = 0; file && done < kMost; done += kPiece) {
    // The end of the piece before: the text may begin there.
    piece.erase(0, piece.size() - std::min(piece.size(), text.size()));
    const size_t kept = piece.size();
    piece.resize(kept + kPiece);
    file.read(piece.data() + kept, kPiece);
    piece.resize(kept + static_cast<size_t>(file.gcount()));
    if (piece.find(text) != std::string::npos) return true;
  }
  return false;
}

// The dynamic section of a program's file, and its loader. A 64-bit little-endian ELF file; of
// anything else it has nothing.
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
    is_elf_file = true;
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_DYNAMIC) look(segment);
      if (segment.p_type == PT_INTERP) loader = text_in_file(segment.p_offset);
    }
  }

  // Empty, too, where its text cannot be read.
  std::optional<std::string> rpath;
  bool is_elf_file = false;
  std::optional<std::string> loader;  // none: it is linked statically

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
      return text_in_file(segment.p_offset + (address - segment.p_vaddr));
    }
    return {};
  }

  std::string text_in_file(uint64_t offset) {
    constexpr size_t kLongest = 64u << 10;
    std::string text(kLongest, '\0');
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text.c_str();
  }

  std::ifstream file_;
  std::vector<Elf64_Phdr> segments_;
};

// Programs that start others, but not in their own environment.
constexpr std::string_view kElsewhere[] = {
    "docker", "podman", "nerdctl", "kubectl", "apptainer", "singularity", "flatpak",    "snap",
    "chroot", "ssh",    "sudo",    "su",      "doas",      "pkexec",      "systemd-run"};

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
  if (gets_rights(program)) {
    return "'" + name +
           "' changes its user or gets capabilities, so the loader does not look for fargpu's "
           "library: run it as the user that it changes to, or without them";
  }
  const Program file(program);
  if (file.loader && file.loader->find("/ld-musl-") != std::string::npos) {
    return "'" + name +
           "' is for musl, and fargpu's library is for glibc: take a build of it for glibc";
  }
  if (file.is_elf_file && !file.loader && names(program, "libcuda.so")) {
    return "'" + name +
           "' is linked statically, and cannot load fargpu's library: link it with shared "
           "libraries (-static and -static-pie left out; cudart may stay static)";
  }
  return {};
}

std::string why_not_executed(const std::string& program, int error) {
  std::error_code ignored;
  if (error == ENOENT && std::filesystem::exists(program, ignored))
    return "what its first line or its ELF file names to run it is missing";
  if (error == ENOEXEC && !is_of_another_machine(program))
    return "it is no ELF file, and has no first line like #!/bin/sh";
  return {};
}

}  // namespace fargpu::cli
