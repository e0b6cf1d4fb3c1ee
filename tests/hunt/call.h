// Calls of the driver that must succeed.
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

namespace fargpu::hunt {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void need(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw Failure(std::string(call) + " gave " + (name == nullptr ? "an unknown error" : name));
}
#define CU(...) ::fargpu::hunt::need((__VA_ARGS__), #__VA_ARGS__)

}  // namespace fargpu::hunt
