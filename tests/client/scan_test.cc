// `fargpu scan` reads files that nobody vouches for: a small library made here, whole and damaged.
#include "client/program/scan.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "client/program/driver_names.h"
#include "tests/client/scan_folder.h"

namespace fargpu::scan {
namespace {

using namespace std::string_view_literals;

constexpr const char* kSymbols[] = {"cuMemAlloc_v2",
                                    "cuGraphicsUnregisterResource",
                                    "cudaGraphicsMapResources_ptsz",
                                    "cudaMalloc",
                                    "dlsym",
                                    "cublasCreate_v2",
                                    "cudaqThing"};
// Linkers let a text be the end of a longer one. The last two are no names: one goes on, the other
// one begins earlier.
constexpr std::string_view kTexts =
    "cuMemFree\0cuGLInit\0cuGLInit\0see cuGLCtxCreate\0cuInit (failed)\0xcuVDPAUGetDevice\0"sv;

enum class Count { kByHash, kByDistance, kBySections };

// A shared library of one segment, at address 0.
class Library {
 public:
  explicit Library(Count count, bool looks_up = true, unsigned char binding = STB_GLOBAL) {
    bytes_.resize(sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr));
    std::vector<Elf64_Sym> symbols(1);
    std::string texts(1, '\0');
    for (const char* name : kSymbols) {
      if (!looks_up && std::strcmp(name, "dlsym") == 0) continue;
      Elf64_Sym symbol{};
      symbol.st_name = static_cast<Elf64_Word>(texts.size());
      symbol.st_info = ELF64_ST_INFO(binding, STT_FUNC);
      symbols.push_back(symbol);
      texts += name + std::string(1, '\0');
    }
    // Defined here: not asked of others.
    Elf64_Sym own{};
    own.st_name = static_cast<Elf64_Word>(texts.size());
    own.st_shndx = 1;
    symbols.push_back(own);
    texts += std::string("cuGraphicsMapResources") + '\0';
    const uint64_t symbols_at = append(symbols.data(), symbols.size() * sizeof(Elf64_Sym));
    const uint64_t texts_at = append(texts.data(), texts.size());
    const uint32_t hash[] = {0, static_cast<uint32_t>(symbols.size())};
    const uint64_t hash_at = append(hash, sizeof hash);
    append(kTexts.data(), kTexts.size());
    std::vector<Elf64_Dyn> dynamic = {entry(DT_SYMTAB, symbols_at), entry(DT_STRTAB, texts_at),
                                      entry(DT_STRSZ, texts.size()),
                                      entry(DT_SYMENT, sizeof(Elf64_Sym))};
    if (count == Count::kByHash) dynamic.push_back(entry(DT_HASH, hash_at));
    dynamic.push_back(entry(DT_NULL, 0));
    const uint64_t dynamic_bytes = dynamic.size() * sizeof(Elf64_Dyn);
    const uint64_t dynamic_at = append(dynamic.data(), dynamic_bytes);
    Elf64_Ehdr header{};
    if (count == Count::kBySections) {
      Elf64_Shdr section{};
      section.sh_type = SHT_DYNSYM;
      section.sh_addr = symbols_at;
      section.sh_size = symbols.size() * sizeof(Elf64_Sym);
      header.e_shoff = append(&section, sizeof section);
      header.e_shnum = 1;
      header.e_shentsize = sizeof(Elf64_Shdr);
    }
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_phoff = sizeof header;
    header.e_phnum = 2;
    header.e_phentsize = sizeof(Elf64_Phdr);
    Elf64_Phdr segments[2]{};
    segments[0].p_type = PT_LOAD;
    segments[0].p_filesz = bytes_.size();
    segments[1].p_type = PT_DYNAMIC;
    segments[1].p_offset = dynamic_at;
    segments[1].p_filesz = dynamic_bytes;
    std::memcpy(bytes_.data(), &header, sizeof header);
    std::memcpy(bytes_.data() + sizeof header, segments, sizeof segments);
  }

  std::string bytes_;

 private:
  static Elf64_Dyn entry(Elf64_Sxword tag, uint64_t value) {
    Elf64_Dyn entry{};
    entry.d_tag = tag;
    entry.d_un.d_val = value;
    return entry;
  }
  uint64_t append(const void* data, size_t bytes) {
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
    const uint64_t at = bytes_.size();
    bytes_.append(static_cast<const char*>(data), bytes);
    return at;
  }
};

class Scan : public ScanFolder {
 protected:
  std::string write(std::string_view bytes, const char* name = "lib.so") {
    std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
    return path;
  }
};

std::vector<std::string> described(const FileScan& scan) {
  std::vector<std::string> found;
  for (const Lack& lack : scan.lacks) {
    found.push_back(std::to_string(static_cast<int>(lack.how)) + " " + lack.name + " " +
                    lack.needs);
    EXPECT_FALSE(lack.why.empty());
  }
  return found;
}

TEST_F(Scan, FindsWhatIsLacking) {
  for (const Count count : {Count::kByHash, Count::kByDistance, Count::kBySections}) {
    const auto scan = scan_file(write(Library(count).bytes_));
    ASSERT_TRUE(scan.ok()) << scan.status().message();
    EXPECT_EQ(scan->symbols, 2u);
    EXPECT_EQ(scan->runtime, 2u);
    EXPECT_EQ(scan->runtime_unknown, 1u);
    EXPECT_EQ(scan->names, 3u);
    EXPECT_FALSE(scan->asks_for_all);
    EXPECT_EQ(described(*scan),
              (std::vector<std::string>{"0 cuGraphicsUnregisterResource ",
                                        "2 cudaGraphicsMapResources_ptsz cuGraphicsMapResources",
                                        "1 cuGLCtxCreate ", "1 cuGLInit "}));
  }
}

TEST_F(Scan, TellsWeakSymbols) {
  for (const bool weak : {false, true}) {
    const auto scan =
        scan_file(write(Library(Count::kByHash, true, weak ? STB_WEAK : STB_GLOBAL).bytes_));
    ASSERT_TRUE(scan.ok());
    for (const Lack& lack : scan->lacks) EXPECT_EQ(lack.weak, weak && lack.how != How::kName);
  }
}

TEST_F(Scan, NamesCountOnlyBesideALookUp) {
  const auto scan = scan_file(write(Library(Count::kByHash, false).bytes_));
  ASSERT_TRUE(scan.ok());
  EXPECT_EQ(scan->names, 0u);
  EXPECT_EQ(scan->lacks.size(), 2u);
}

TEST_F(Scan, NamesAreFoundWhereverChunksEnd) {
  const std::string library = Library(Count::kByHash).bytes_;
  constexpr size_t kChunk = 1 << 20;
  constexpr std::string_view name = "\0cuVDPAUGetDevice\0"sv;
  for (size_t before = 0; before < 20; ++before) {
    std::string bytes = library;
    bytes.resize(kChunk - before, '.');
    bytes += name;
    bytes.resize(2 * kChunk + 100, '.');
    Elf64_Phdr load;
    std::memcpy(&load, bytes.data() + sizeof(Elf64_Ehdr), sizeof load);
    load.p_filesz = bytes.size();
    std::memcpy(bytes.data() + sizeof(Elf64_Ehdr), &load, sizeof load);
    const auto scan = scan_file(write(bytes));
    ASSERT_TRUE(scan.ok());
    EXPECT_EQ(scan->names, 4u) << before;
  }
}

TEST_F(Scan, RefusesWhatIsNoLibrary) {
  EXPECT_EQ(scan_file(write("#!/bin/sh\n")).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(scan_file(write("")).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(scan_file(folder_).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(scan_file(folder_ + "/none").status().code(), StatusCode::kSystem);
  std::string bytes = Library(Count::kByHash).bytes_;
  bytes[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(scan_file(write(bytes)).status().code(), StatusCode::kUnsupported);
  bytes[EI_CLASS] = ELFCLASS64;
  bytes[offsetof(Elf64_Ehdr, e_type)] = ET_REL;
  EXPECT_EQ(scan_file(write(bytes)).status().code(), StatusCode::kUnsupported);
}

TEST_F(Scan, SurvivesDamagedFiles) {
  for (const Count count : {Count::kByHash, Count::kByDistance, Count::kBySections}) {
    const std::string whole = Library(count).bytes_;
    const auto expect_an_answer = [&](std::string_view bytes) {
      const auto scan = scan_file(write(bytes));
      if (!scan.ok()) {
        EXPECT_TRUE(scan.status().code() == StatusCode::kInvalidArgument ||
                    scan.status().code() == StatusCode::kUnsupported);
      }
    };
    for (size_t length = 0; length < whole.size(); length += 7)
      expect_an_answer(std::string_view(whole).substr(0, length));
    for (size_t at = 0; at < whole.size(); at += 2) {
      for (const char value : {'\x01', '\xff'}) {
        std::string bytes = whole;
        bytes[at] = value;
        expect_an_answer(bytes);
      }
    }
    for (size_t at = 0; at + 8 <= whole.size(); at += 8) {
      for (const uint64_t value : {uint64_t{0}, ~uint64_t{0}, whole.size()}) {
        std::string bytes = whole;
        std::memcpy(bytes.data() + at, &value, sizeof value);
        expect_an_answer(bytes);
      }
    }
  }
}

TEST(RuntimeNeeds, AreFunctionsOfTheDriver) {
  for (const RuntimeNeed& each : runtime_needs()) {
    EXPECT_NE(find_name(each.needs), nullptr) << each.needs;
    EXPECT_EQ(needed_by_runtime(each.function), each.needs);
  }
}

TEST_F(Scan, ListsLibrariesOfAFolder) {
  std::filesystem::create_directory(folder_ + "/inside");
  const std::string deep = write("", "inside/b.cpython.so"), versioned = write("", "a.so.1.20");
  for (const char* other : {"solo.txt", "x.so.txt", "libstdc++.so.6.0.30-gdb.py", "x.so.8.gz"})
    write("", other);
  std::filesystem::create_symlink(deep, folder_ + "/link.so");
  const auto found = libraries_below(folder_);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->files, (std::vector<std::string>{versioned, deep}));
  EXPECT_TRUE(found->unreadable.empty());
  EXPECT_FALSE(libraries_below(folder_ + "/none").ok());
}

}  // namespace
}  // namespace fargpu::scan
