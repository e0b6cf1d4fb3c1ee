// Predicts from a program's file whether it will find fargpu's libcuda.so.1. Pure look-ups; the
// file is untrusted.
#pragma once

#include <string>

namespace fargpu::cli {

// Whether it has a DT_RPATH, which the dynamic loader searches before LD_LIBRARY_PATH (a DT_RUNPATH
// after it). Such a program could find another libcuda first, so it needs LD_PRELOAD. False for
// anything that is not a 64-bit little-endian ELF file with a readable dynamic section: scripts,
// for example.
bool has_rpath(const std::string& program);

// Whether a folder of its DT_RPATH has a file of that name: the program would load that one.
bool rpath_leads_to(const std::string& program, const std::string& library);

// One line for a program that will probably not use remote GPUs, with a remedy: it is of another
// machine type, it changes its user, so that the loader ignores LD_LIBRARY_PATH, what it starts
// does not get its environment, or it loads no library for glibc. Empty: nothing stands against it.
std::string doubt_about(const std::string& program);

// More about exec's error; empty: there is no more to say.
std::string why_not_executed(const std::string& program, int error);

}  // namespace fargpu::cli
