// One question about an ELF program: has it a DT_RPATH? The dynamic loader searches that before
// LD_LIBRARY_PATH (DT_RUNPATH after it), so such a program could find another libcuda first and
// needs LD_PRELOAD instead. Pure look-up; the file is untrusted.
#pragma once

#include <string>

namespace fargpu::cli {

// False for anything that is not a 64-bit little-endian ELF file with a readable dynamic section:
// scripts, for example.
bool has_rpath(const std::string& program);

}  // namespace fargpu::cli
