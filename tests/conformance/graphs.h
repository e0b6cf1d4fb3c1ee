// What conformance programs about graphs share: parameters of nodes.
#pragma once

#include <cuda.h>

#include <cstdint>

// `value` into words of device memory.
inline CUDA_MEMSET_NODE_PARAMS memset_params(CUdeviceptr p, uint32_t value, size_t words) {
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = p;
  params.value = value;
  params.elementSize = 4;
  params.width = words;
  params.height = 1;
  return params;
}

inline CUDA_MEMCPY3D row(size_t bytes) {
  CUDA_MEMCPY3D params{};
  params.WidthInBytes = bytes;
  params.Height = params.Depth = 1;
  return params;
}
inline CUDA_MEMCPY3D copy_params(void* to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D params = row(bytes);
  params.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  params.srcDevice = from;
  params.dstMemoryType = CU_MEMORYTYPE_HOST;
  params.dstHost = to;
  return params;
}
inline CUDA_MEMCPY3D copy_params(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D params = row(bytes);
  params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  params.srcDevice = from;
  params.dstDevice = to;
  return params;
}

// The parameters of a kernel in blocks of 32 threads, one for each of `n` words.
inline CUDA_KERNEL_NODE_PARAMS kernel_params(CUfunction function, void** parameters, uint32_t n) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function;
  params.gridDimX = (n + 31) / 32;
  params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = 32;
  params.kernelParams = parameters;
  return params;
}

// Those of the kernels fill and add (kernels.h), where a node finds them.
struct FillParams {
  CUdeviceptr p;
  uint32_t value, n;
  void* pointers[3] = {&p, &value, &n};
  CUDA_KERNEL_NODE_PARAMS node(CUfunction function) { return kernel_params(function, pointers, n); }
};

struct AddParams {
  CUdeviceptr a, b, c;
  uint32_t n;
  void* pointers[4] = {&a, &b, &c, &n};
  CUDA_KERNEL_NODE_PARAMS node(CUfunction function) { return kernel_params(function, pointers, n); }
};
