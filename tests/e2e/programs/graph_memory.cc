// Asks for the memory that graphs use, twice, and says what came of it; then checks that calls of
// older releases still work.
#include <cuda.h>

#include <cstdio>

int main() {
  CUdevice device = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return 1;
  for (int round = 0; round < 2; ++round) {
    cuuint64_t bytes = 1;
    const CUresult result =
        cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes);
    const char* name = "?";
    cuGetErrorName(result, &name);
    std::printf("%s %llu\n", name, static_cast<unsigned long long>(bytes));
  }
  CUcontext context;
  CUdeviceptr memory = 0;
  unsigned word = 0;
  const bool works = cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
                     cuCtxSetCurrent(context) == CUDA_SUCCESS &&
                     cuMemAlloc(&memory, sizeof(word)) == CUDA_SUCCESS &&
                     cuMemsetD32(memory, 7, 1) == CUDA_SUCCESS &&
                     cuMemcpyDtoH(&word, memory, sizeof(word)) == CUDA_SUCCESS && word == 7;
  std::puts(works ? "everything else works" : "older calls fail, too");
  return works ? 0 : 1;
}
