// `fargpu scan` reads files that are made to cost memory and time: small ones whose names overlap,
// and sparse ones that are as large as a file can be.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "client/program/scan.h"
#include "tests/client/scan_folder.h"

namespace fargpu::scan {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kCanLimit = false;  // it reserves terabytes
#elif defined(__SANITIZE_THREAD__)
constexpr bool kCanLimit = false;
#else
constexpr bool kCanLimit = true;
#endif

constexpr uint64_t kMiB = 1 << 20, kTiB = uint64_t{1} << 40;
constexpr uint64_t kDynamicAt = 4096, kSymbolsAt = 4 * kMiB;

// So much more address space than now, during its life.
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t bytes) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<uint64_t>(::getpagesize()) + bytes;
    if (kCanLimit) {
      EXPECT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
    }
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

Elf64_Phdr segment(Elf64_Word type, uint64_t at, uint64_t bytes) {
  Elf64_Phdr made{};
  made.p_type = type;
  made.p_offset = made.p_vaddr = at;
  made.p_filesz = bytes;
  return made;
}

// A library whose file is mapped as a whole. Its texts lie behind its symbols.
struct Library {
  size_t symbols = 1;       // undefined ones, which share the first text
  std::string texts;        // from the second byte on
  uint64_t text_bytes = 0;  // 0: as many as there are
  size_t useless = 0;       // entries of the dynamic section before the useful ones
  uint64_t dynamic_bytes = 4096;
  uint64_t file_bytes = 8 * kMiB;
};

class ScanLimits : public ScanFolder {
 protected:
  std::string write(const Library& library) {
    std::vector<Elf64_Sym> symbols(1 + library.symbols);
    for (size_t i = 1; i < symbols.size(); ++i) symbols[i].st_name = 1;
    const uint64_t symbol_bytes = symbols.size() * sizeof(Elf64_Sym);
    const std::string texts = '\0' + library.texts + '\0';
    std::vector<Elf64_Dyn> dynamic(library.useless, Elf64_Dyn{DT_NEEDED, {1}});
    dynamic.push_back({DT_SYMTAB, {kSymbolsAt}});
    dynamic.push_back({DT_STRTAB, {kSymbolsAt + symbol_bytes}});
    dynamic.push_back({DT_STRSZ, {library.text_bytes == 0 ? texts.size() : library.text_bytes}});
    dynamic.push_back({DT_NULL, {0}});
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_phoff = sizeof header;
    header.e_phnum = 2;
    header.e_phentsize = sizeof(Elf64_Phdr);
    const Elf64_Phdr segments[] = {segment(PT_LOAD, 0, library.file_bytes),
                                   segment(PT_DYNAMIC, kDynamicAt, library.dynamic_bytes)};
    std::string path = folder_ + "/lib.so";
    std::ofstream file(path, std::ios::binary);
    const auto put = [&file](uint64_t at, const void* data, uint64_t bytes) {
      file.seekp(static_cast<std::streamoff>(at));
      file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    };
    put(0, &header, sizeof header);
    put(sizeof header, segments, sizeof segments);
    put(kDynamicAt, dynamic.data(), dynamic.size() * sizeof(Elf64_Dyn));
    put(kSymbolsAt, symbols.data(), symbol_bytes);
    put(kSymbolsAt + symbol_bytes, texts.data(), texts.size());
    file.close();
    std::filesystem::resize_file(path, library.file_bytes);
    return path;
  }
  StatusCode code_of(const Library& library) { return scan_file(write(library)).status().code(); }
};

TEST_F(ScanLimits, ManySymbolsShareALongName) {
  const std::string path = write({.symbols = 40'000, .texts = std::string(kMiB, 'a')});
  const MemoryLimit limit(256 * kMiB);
  const auto scan = scan_file(path);
  ASSERT_TRUE(scan.ok()) << scan.status().message();
  EXPECT_EQ(scan->symbols, 0u);
}

TEST_F(ScanLimits, ADynamicSectionEndsBeforeItsSegment) {
  const std::string path =
      write({.texts = "cuInit", .dynamic_bytes = kTiB - kDynamicAt, .file_bytes = kTiB});
  const MemoryLimit limit(256 * kMiB);
  const auto scan = scan_file(path);
  ASSERT_TRUE(scan.ok()) << scan.status().message();
  EXPECT_EQ(scan->symbols, 1u);
}

TEST_F(ScanLimits, ADynamicSectionHasSoManyEntries) {
  Library library{.texts = "cuInit", .useless = 60'000, .dynamic_bytes = 2 * kMiB};
  EXPECT_EQ(code_of(library), StatusCode::kOk);
  library.useless = 70'000;
  EXPECT_EQ(code_of(library), StatusCode::kInvalidArgument);
}

TEST_F(ScanLimits, ATextTableIsSoLarge) {
  EXPECT_EQ(code_of({.texts = "cuInit", .text_bytes = 1024 * kMiB, .file_bytes = kTiB}),
            StatusCode::kInvalidArgument);
}

TEST_F(ScanLimits, SoMuchIsSearchedForNames) {
  EXPECT_EQ(code_of({.texts = "dlsym", .file_bytes = kTiB}), StatusCode::kInvalidArgument);
  // Nothing is searched without a function that looks names up.
  EXPECT_EQ(code_of({.texts = "cuInit", .file_bytes = kTiB}), StatusCode::kOk);
}

TEST_F(ScanLimits, MemoryIsShort) {
  if (!kCanLimit) GTEST_SKIP() << "a sanitizer";
  const std::string path =
      write({.texts = "cuInit", .text_bytes = 200 * kMiB, .file_bytes = 300 * kMiB});
  EXPECT_TRUE(scan_file(path).ok());
  const MemoryLimit limit(64 * kMiB);
  EXPECT_EQ(scan_file(path).status().code(), StatusCode::kSystem);
}

}  // namespace
}  // namespace fargpu::scan
