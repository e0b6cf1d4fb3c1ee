// The launch interface of CUDA 3: a function keeps its block, its parameters and its shared memory
// between launches.
#include "tests/conformance/by_name.h"
#include "tests/conformance/kernels.h"

namespace {

CUdeviceptr words;

void show_words(const char* text) {
  uint32_t out[8]{};
  NEED(cuCtxSynchronize());
  NEED(cuMemcpyDtoH(out, words, sizeof out));
  std::printf("  %s:", text);
  for (uint32_t word : out) std::printf(" %x", word);
  std::printf("\n");
  NEED(cuMemsetD32(words, 0, 8));
  NEED(cuCtxSynchronize());  // streams that do not wait for the default stream come next
}

void set_fill(CUfunction fill, unsigned value, unsigned count) {
  SHOW(cuParamSetv(fill, 0, &words, sizeof words));
  SHOW(cuParamSeti(fill, 8, value));
  SHOW(cuParamSeti(fill, 12, count));
  SHOW(cuParamSetSize(fill, 16));
}

void fills(CUmodule module, CUstream stream) {
  CUfunction fill;
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  SHOW(cuFuncSetBlockShape(fill, 2, 1, 1));
  set_fill(fill, 7, 5);
  SHOW(cuLaunch(fill));
  show_words("one block of two");
  SHOW(cuLaunchGrid(fill, 3, 1));
  show_words("three blocks, five words");
  SHOW(cuParamSetf(fill, 8, 1.0f));
  SHOW(cuLaunchGridAsync(fill, 1, 1, stream));
  SHOW(cuStreamSynchronize(stream));
  show_words("a float");
  SHOW(cuFuncSetBlockShape(fill, 4, 1, 1));
  SHOW(cuLaunchGridAsync(fill, 2, 1, nullptr));
  show_words("another block, the same parameters");
}

// 128 values through static and dynamic shared memory.
void sums(CUmodule module) {
  CUfunction sum;
  CUdeviceptr in, out;
  std::vector<uint32_t> values(128), found(128);
  for (unsigned i = 0; i < 128; ++i) values[i] = i * i;
  NEED(cuModuleGetFunction(&sum, module, "shared_sum"));
  NEED(cuMemAlloc(&in, 512));
  NEED(cuMemAlloc(&out, 512));
  NEED(cuMemcpyHtoD(in, values.data(), 512));
  SHOW(cuFuncSetBlockShape(sum, 128, 1, 1));
  SHOW(cuFuncSetSharedSize(sum, 512));
  SHOW(cuParamSetv(sum, 0, &in, sizeof in));
  SHOW(cuParamSetv(sum, 8, &out, sizeof out));
  SHOW(cuParamSetSize(sum, 16));
  SHOW(cuLaunch(sum));
  NEED(cuMemcpyDtoH(found.data(), out, 512));
  std::printf("  sums: %08x\n", checksum(found));
}

}  // namespace

int main() {
  make_context();
  CUmodule module;
  CUstream stream;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuMemAlloc(&words, 32));
  NEED(cuMemsetD32(words, 0, 8));
  fills(module, stream);
  sums(module);
  return 0;
}
