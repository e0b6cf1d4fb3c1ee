#include "client/bench/measure/gpu.h"

#include <cstdlib>
#include <cstring>

#include "common/host/memory_page.h"

namespace fargpu::bench {

namespace {

char* pageable_memory(size_t bytes) {
  void* const memory = std::aligned_alloc(kPageBytes, page_from(bytes));
  if (memory == nullptr) throw Failed("no memory left on this host");
  std::memset(memory, 1, bytes);
  return static_cast<char*>(memory);
}

}  // namespace

std::string image_text(unsigned kernels, const std::string& mark) {
  std::string text = "// " + mark + "\n.version 6.0\n.target sm_50\n.address_size 64\n";
  for (unsigned i = 0; i < kernels; ++i)
    text += ".visible .entry kernel_" + std::to_string(i) + "() { ret; }\n";
  return text;
}

void enter_context() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  NEED(cuInit(0));
  NEED(cuDeviceGet(&device, 0));
  NEED(cuDevicePrimaryCtxRetain(&context, device));
  NEED(cuCtxSetCurrent(context));
}

Gpu::Gpu(size_t largest) : largest_(largest) {
  enter_context();
  CUmodule module = nullptr;
  NEED(cuModuleLoadData(&module, image_text(1, "empty").c_str()));
  NEED(cuModuleGetFunction(&kernel_, module, "kernel_0"));
  NEED(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
}

void Gpu::launch(CUstream stream) const {
  NEED(cuLaunchKernel(kernel_, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
}

char* Gpu::new_host(const std::string& memory) const {
  if (memory == "pinned") {
    void* allocated = nullptr;
    NEED(cuMemHostAlloc(&allocated, largest_, 0));
    std::memset(allocated, 1, largest_);
    return static_cast<char*>(allocated);
  }
  char* const allocated = pageable_memory(largest_);
  if (memory == "registered") NEED(cuMemHostRegister(allocated, largest_, 0));
  return allocated;
}

char* Gpu::host(const std::string& memory, unsigned which) {
  char*& kept = memory == "pinned"       ? pinned_[which]
                : memory == "registered" ? registered_
                                         : pageable_;
  if (kept == nullptr) kept = new_host(memory);
  return kept;
}

CUdeviceptr Gpu::device(unsigned which) {
  if (device_[which] == 0) NEED(cuMemAlloc(&device_[which], largest_));
  return device_[which];
}

}  // namespace fargpu::bench
