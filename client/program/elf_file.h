// The contents of the file of a program or shared library: a 64-bit little-endian ELF file.
//
// The file is untrusted: every offset and count is checked against its size, which may be a sparse
// file's, and against limits of memory and time; it may change while it is read. No file that it
// names is looked for. One thread.
#pragma once

#include <elf.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::scan {

class ElfFile {
 public:
  // kUnsupported: it is no such file; kInvalidArgument: it is damaged, or larger than any such file
  // is; kSystem: it cannot be read.
  static Result<ElfFile> open(const std::string& path);

  struct Undefined {
    std::string name;
    bool weak;  // it may do without
  };
  // Symbols that it wants others to define, in the order of the file. Names that are longer than
  // any of the driver are left out.
  const std::vector<Undefined>& undefined() const { return undefined_; }
  // Calls visit() for each text that may name a function of the driver: "cu", an upper-case letter,
  // letters, digits and underscores, between other characters and a NUL, in mapped segments; names
  // of symbols are left out.
  Status for_each_name(const std::function<void(std::string_view)>& visit) const;

 private:
  struct Range {
    uint64_t begin, end;
  };
  struct Dynamic {
    uint64_t texts = 0, text_bytes = 0, symbols = 0, hash = 0;  // addresses, but for the size
  };

  ElfFile() = default;
  Status read_at(uint64_t offset, void* out, uint64_t bytes) const;
  template <typename T>
  Result<std::vector<T>> table(uint64_t offset, uint64_t count) const;
  // kInvalidArgument: no `bytes` of the file are mapped there.
  Result<uint64_t> offset_of(uint64_t address, uint64_t bytes) const;
  Status read(const Elf64_Ehdr& header);
  Status read_undefined(const Elf64_Ehdr& header, const Elf64_Phdr& dynamic);
  Result<Dynamic> read_dynamic(const Elf64_Phdr& segment) const;
  Status add_undefined(const Elf64_Sym& symbol, std::string_view texts);
  Result<uint64_t> count_symbols(const Elf64_Ehdr& header, const Dynamic& dynamic) const;
  void visit_range(const Range& range, const std::function<void(std::string_view)>& visit,
                   Status& status) const;

  Fd file_;
  uint64_t size_ = 0;
  std::vector<Elf64_Phdr> segments_;
  Range names_{0, 0};  // of symbols
  std::vector<Undefined> undefined_;
};

}  // namespace fargpu::scan
