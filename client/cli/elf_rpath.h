// Answers one question about an ELF program: does it have a DT_RPATH? The dynamic loader searches a
// DT_RPATH before LD_LIBRARY_PATH (and a DT_RUNPATH after it). Such a program could find another
// libcuda first, so it needs LD_PRELOAD. Pure look-up; the file is untrusted.
#pragma once

#include <string>

namespace fargpu::cli {

// False for anything that is not a 64-bit little-endian ELF file with a readable dynamic section:
// scripts, for example.
bool has_rpath(const std::string& program);

}  // namespace fargpu::cli
