// The name of the function at an address, from the symbols in its file (.symtab, else .dynsym).
#pragma once

#include <cstdint>
#include <string>

namespace fargpu::client::where {

// `address`: as the file has it. As C++ writes it; empty: there is none, or the file is no ELF file
// of 64 bits, or is damaged. The file is mapped and may be large: ask once for each address.
std::string function_in_file(const std::string& path, uint64_t address);

}  // namespace fargpu::client::where
