// Driver functions that a program's files need and that fargpu lacks, as far as the files show it:
// symbols that they leave to the loader, names that they may ask for, functions of the runtime
// library that need one. Nothing is run, and no other file is looked for. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace fargpu::scan {

enum class How {
  kSymbol,   // an undefined symbol: the file calls it
  kName,     // a string, in a file that looks functions up by name
  kRuntime,  // it calls a function of the runtime library that needs this one
};

struct Lack {
  How how;
  std::string name;   // as the file has it
  std::string needs;  // the driver function, if that has another name
  std::string why;    // it is not supported
  bool weak = false;  // the symbol is: the file may do without it
};

struct FileScan {
  std::string path;
  size_t symbols = 0, names = 0, runtime = 0;  // functions that were found, by How
  size_t runtime_unknown = 0;  // functions of the runtime library of which nothing is known here
  // It asks for so many names that it holds the runtime library, or a binding of the whole driver.
  // Which of them are used cannot be seen: they are not among `lacks`.
  bool asks_for_all = false;
  std::vector<Lack> lacks;  // each name once
};

// kUnsupported: no ELF file of 64 bits, as a linker script that is called like a library.
// kInvalidArgument: a damaged one. kSystem: it cannot be read, or memory is short.
Result<FileScan> scan_file(const std::string& path);

struct Libraries {
  std::vector<std::string> files;       // in order of their names
  std::vector<std::string> unreadable;  // folders, each with the reason
};
// Shared libraries below a folder: names that end with ".so", or with ".so." and a version of
// digits and dots. Links are not followed.
Result<Libraries> libraries_below(const std::string& folder);

}  // namespace fargpu::scan
