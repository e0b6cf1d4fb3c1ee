// The CUDA driver that this process measures: libcuda.so.1 as the loader finds it, NVIDIA's or
// fargpu's. Loaded when the program runs, so that one program measures both. A call that fails
// throws Failed, which the program's main loop makes an answer. Any thread.
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

#include "common/base/status.h"

namespace fargpu::bench {

#define FARGPU_MEASURED_FUNCTIONS(X)                            \
  X(cuInit, "cuInit")                                           \
  X(cuDriverGetVersion, "cuDriverGetVersion")                   \
  X(cuGetErrorName, "cuGetErrorName")                           \
  X(cuDeviceGet, "cuDeviceGet")                                 \
  X(cuDeviceGetCount, "cuDeviceGetCount")                       \
  X(cuDeviceGetName, "cuDeviceGetName")                         \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")       \
  X(cuCtxSetCurrent, "cuCtxSetCurrent")                         \
  X(cuCtxSynchronize, "cuCtxSynchronize")                       \
  X(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange") \
  X(cuCtxGetLimit, "cuCtxGetLimit")                             \
  X(cuStreamCreate, "cuStreamCreate")                           \
  X(cuStreamDestroy, "cuStreamDestroy_v2")                      \
  X(cuStreamSynchronize, "cuStreamSynchronize")                 \
  X(cuStreamQuery, "cuStreamQuery")                             \
  X(cuEventCreate, "cuEventCreate")                             \
  X(cuEventDestroy, "cuEventDestroy_v2")                        \
  X(cuEventRecord, "cuEventRecord")                             \
  X(cuEventSynchronize, "cuEventSynchronize")                   \
  X(cuMemGetInfo, "cuMemGetInfo_v2")                            \
  X(cuMemAlloc, "cuMemAlloc_v2")                                \
  X(cuMemFree, "cuMemFree_v2")                                  \
  X(cuMemHostAlloc, "cuMemHostAlloc")                           \
  X(cuMemFreeHost, "cuMemFreeHost")                             \
  X(cuMemHostRegister, "cuMemHostRegister_v2")                  \
  X(cuMemHostUnregister, "cuMemHostUnregister")                 \
  X(cuMemsetD32Async, "cuMemsetD32Async")                       \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2")                  \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2")                  \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2")                  \
  X(cuModuleLoadData, "cuModuleLoadData")                       \
  X(cuModuleUnload, "cuModuleUnload")                           \
  X(cuModuleGetFunction, "cuModuleGetFunction")                 \
  X(cuLaunchKernel, "cuLaunchKernel")                           \
  X(cuGraphCreate, "cuGraphCreate")                             \
  X(cuGraphDestroy, "cuGraphDestroy")                           \
  X(cuGraphAddKernelNode, "cuGraphAddKernelNode_v2")            \
  X(cuGraphInstantiate, "cuGraphInstantiateWithFlags")          \
  X(cuGraphExecDestroy, "cuGraphExecDestroy")                   \
  X(cuGraphLaunch, "cuGraphLaunch")

struct Driver {
#define FARGPU_MEMBER(name, symbol) decltype(&::name) name = nullptr;
  FARGPU_MEASURED_FUNCTIONS(FARGPU_MEMBER)
#undef FARGPU_MEMBER
  std::string path;  // of the file that the loader found
};

// The process's driver. Empty before load_driver().
extern Driver driver;

// Loads and does not call it. kNotFound: no libcuda.so.1, or one that lacks a function.
Status load_driver();

// A measurement that could not be made.
class Failed final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws with the call and the result's name.
void need(CUresult result, const char* call);
#define NEED(call) ::fargpu::bench::need(::fargpu::bench::driver.call, #call)

}  // namespace fargpu::bench
