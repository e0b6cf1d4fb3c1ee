// For conformance programs that call functions by the names of their symbols, because cuda.h has no
// prototype for them, or one of a later version. The driver is the one that the program is linked
// with.
#pragma once

#include <dlfcn.h>

#include "tests/conformance/conformance.h"

template <typename... Arguments>
CUresult call(const char* name, Arguments... arguments) {
  void* const found = ::dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    std::printf("%s is missing\n", name);
    return CUDA_ERROR_NOT_FOUND;
  }
  return reinterpret_cast<CUresult (*)(Arguments...)>(found)(arguments...);
}
