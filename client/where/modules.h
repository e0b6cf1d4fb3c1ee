// The program and the libraries that it has loaded. Any thread; without the loader's lock, which a
// thread may hold that waits for this one.
#pragma once

#include <cstdint>
#include <string>

namespace fargpu::client::where {

struct Module {
  std::string path;     // empty: it has no file
  uint64_t base = 0;    // difference of its addresses in memory and in its file
  uintptr_t begin = 0;  // differs from module to module; 0: the address is in none
};
Module module_of(const void* address);

// How many were ever loaded.
uint64_t modules_loaded();
// Whether there is one whose path has this in it.
bool is_loaded(const char* part_of_path);

}  // namespace fargpu::client::where
