// Launches: parameters in both forms, dynamic shared memory, invalid dimensions, cooperative and
// extended launches.
#include <cstddef>

#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

int main() {
  make_context();
  CUmodule module;
  CUfunction add, fill, sum;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&add, module, "add"));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  NEED(cuModuleGetFunction(&sum, module, "shared_sum"));
  const int n = 10000;
  std::vector<unsigned> a(n), b(n), c(n);
  for (int i = 0; i < n; ++i) {
    a[i] = static_cast<unsigned>(i * 3);
    b[i] = static_cast<unsigned>(i ^ 0x55);
  }
  CUdeviceptr da, db, dc;
  NEED(cuMemAlloc(&da, n * 4));
  NEED(cuMemAlloc(&db, n * 4));
  NEED(cuMemAlloc(&dc, n * 4));
  NEED(cuMemcpyHtoD(da, a.data(), n * 4));
  NEED(cuMemcpyHtoD(db, b.data(), n * 4));
  void* arguments[] = {&da, &db, &dc, const_cast<int*>(&n)};
  SHOW(cuLaunchKernel(add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
  SHOW(cuMemcpyDtoH(c.data(), dc, n * 4));
  long wrong = 0;
  for (int i = 0; i < n; ++i) wrong += c[i] != a[i] + b[i];
  VALUE(wrong);

  // The packed form.
  struct Packed {
    CUdeviceptr p;
    unsigned value, n;
  } packed{dc, 77, static_cast<unsigned>(n)};
  size_t packed_bytes = sizeof(packed);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &packed_bytes, CU_LAUNCH_PARAM_END};
  SHOW(cuLaunchKernel(fill, 40, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  SHOW(cuMemcpyDtoH(c.data(), dc, n * 4));
  wrong = 0;
  for (unsigned value : c) wrong += value != 77;
  VALUE(wrong);
  SHOW(cuLaunchKernel(fill, 40, 1, 1, 256, 1, 1, 0, nullptr, arguments, extra));
  void* no_extra[] = {CU_LAUNCH_PARAM_END};
  void* each[] = {&packed.p, &packed.value, &packed.n};
  SHOW(cuLaunchKernel(fill, 40, 1, 1, 256, 1, 1, 0, nullptr, each, no_extra));
  for (packed_bytes = 0; packed_bytes <= 32; packed_bytes += 32)
    SHOW(cuLaunchKernel(fill, 40, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  // A buffer may end before the parameters do; what they are then is not defined.
  packed.n = 0;
  packed_bytes = offsetof(Packed, n);
  SHOW(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));

  void* sum_arguments[] = {&da, &dc};
  SHOW(cuLaunchKernel(sum, 1, 1, 1, 128, 1, 1, 512, nullptr, sum_arguments, nullptr));
  SHOW(cuMemcpyDtoH(c.data(), dc, 512));
  wrong = 0;
  for (int i = 0; i < 128; ++i) wrong += c[i] != a[127 - i] + static_cast<unsigned>(127 - i);
  VALUE(wrong);

  SHOW(cuLaunchKernel(add, 0, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  SHOW(cuLaunchKernel(add, 1, 0, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  SHOW(cuLaunchKernel(add, 1, 1, 1, 0, 1, 1, 0, nullptr, arguments, nullptr));
  SHOW(cuLaunchKernel(add, 1, 1, 1, 1025, 1, 1, 0, nullptr, arguments, nullptr));
  SHOW(cuLaunchKernel(add, 1, 1, 1, 32, 33, 1, 0, nullptr, arguments, nullptr));
  SHOW(cuLaunchKernel(add, 1, 1, 1, 1, 1, 65, 0, nullptr, arguments, nullptr));
  SHOW(cuLaunchKernel(add, 1, 70000, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  SHOW(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 1 << 20, nullptr, arguments, nullptr));
  SHOW(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));

  SHOW(cuLaunchCooperativeKernel(add, 2, 1, 1, 64, 1, 1, 0, nullptr, arguments));
  SHOW(cuLaunchCooperativeKernel(add, 60000, 1, 1, 1024, 1, 1, 0, nullptr, arguments));
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64;
  config.blockDimY = config.blockDimZ = 1;
  SHOW(cuLaunchKernelEx(&config, add, arguments, nullptr));
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  SHOW(cuLaunchKernelEx(&config, add, arguments, nullptr));
  SHOW(cuLaunchKernelEx(nullptr, add, arguments, nullptr));
  // What cannot be is refused by the launch itself, and the same again, with attributes that the
  // function was launched with before.
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  config.gridDimX = 4;
  for (const unsigned grid : {4u, 5u, 4u}) {
    config.gridDimX = grid;
    SHOW(cuLaunchKernelEx(&config, add, arguments, nullptr));
    SHOW(cuCtxSynchronize());
  }
  for (const unsigned size : {0u, 3u, 16u}) {
    attribute.value.clusterDim.x = size;
    SHOW(cuLaunchKernelEx(&config, add, arguments, nullptr));
    SHOW(cuCtxSynchronize());
  }
  attribute.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
  attribute.value.memSyncDomain = static_cast<CUlaunchMemSyncDomain>(7);
  SHOW(cuLaunchKernelEx(&config, add, arguments, nullptr));
  for (const int id : {-1, 3, 18, 1000}) {
    attribute.id = static_cast<CUlaunchAttributeID>(id);
    SHOW(cuLaunchKernelEx(&config, add, arguments, nullptr));
    SHOW(cuCtxSynchronize());
  }
  SHOW(cuCtxSynchronize());

  // On several devices as one; here there is one.
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  unsigned number = 77, elements = 64;
  void* of_fill[] = {&dc, &number, &elements};
  CUDA_LAUNCH_PARAMS launches[2] = {{fill, 1, 1, 1, 64, 1, 1, 0, stream, of_fill}};
  launches[1] = launches[0];
  SHOW(cuLaunchCooperativeKernelMultiDevice(launches, 1, 0));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuMemcpyDtoH(c.data(), dc, 256));
  VALUE(c[63]);
  SHOW(cuLaunchCooperativeKernelMultiDevice(launches, 1, 3));
  SHOW(cuLaunchCooperativeKernelMultiDevice(launches, 1, 4));
  SHOW(cuLaunchCooperativeKernelMultiDevice(launches, 0, 0));
  SHOW(cuLaunchCooperativeKernelMultiDevice(nullptr, 1, 0));
  SHOW(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0));
  for (CUstream other : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    launches[0].hStream = other;
    SHOW(cuLaunchCooperativeKernelMultiDevice(launches, 1, 0));
  }
  launches[0] = launches[1];
  launches[0].gridDimX = 1 << 30;
  SHOW(cuLaunchCooperativeKernelMultiDevice(launches, 1, 0));
  launches[0] = launches[1];
  launches[0].blockDimX = 4096;
  SHOW(cuLaunchCooperativeKernelMultiDevice(launches, 1, 0));
  launches[0] = launches[1];
  launches[0].function = nullptr;
  SHOW(cuLaunchCooperativeKernelMultiDevice(launches, 1, 0));
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuLaunchCooperativeKernelMultiDevice(launches + 1, 1, 0));
  CUgraph captured = nullptr;
  SHOW(cuStreamEndCapture(stream, &captured));
  NEED(cuStreamDestroy(stream));

  // Values are taken at the launch, not later.
  unsigned value = 1, size = 64;
  void* fill_arguments[] = {&dc, &value, &size};
  for (value = 1; value <= 50; ++value)
    NEED(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, nullptr, fill_arguments, nullptr));
  value = 1000;
  SHOW(cuMemcpyDtoH(c.data(), dc, 256));
  VALUE(c[0]);
  VALUE(c[63]);
  SHOW(cuModuleUnload(module));
  return 0;
}
