#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, AddsVectors) {
  constexpr uint32_t kN = 1000;
  CUdeviceptr a = allocate(kN * 4), b = allocate(kN * 4), c = allocate(kN * 4);
  std::vector<uint32_t> in(kN), out(kN);
  for (uint32_t i = 0; i < kN; ++i) in[i] = i * i;
  OK(cuMemcpyHtoD(a, in.data(), kN * 4));
  OK(fill(b, 5, kN));
  uint32_t n = kN;
  OK(launch(function("add"), 128, {&a, &b, &c, &n}, nullptr, 8));
  OK(cuMemcpyDtoH(out.data(), c, kN * 4));
  for (uint32_t i = 0; i < kN; ++i) ASSERT_EQ(out[i], i * i + 5);
}

TEST_F(ContextTest, ParametersAsOneBuffer) {
  CUdeviceptr p = allocate(400);
  struct {
    CUdeviceptr p;
    uint32_t value, n;
  } packed{p, 6, 100};
  size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  CUfunction fill = function("fill");
  OK(cuLaunchKernel(fill, 1, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
  packed.p = 0;  // taken at the launch
  EXPECT_EQ(read_word(p + 396), 6u);
  packed = {p, 7, 100};
  bytes = 12;  // the number of words is missing: it is 0
  OK(cuLaunchKernel(fill, 1, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(read_word(p), 6u);
  void* parameters[] = {&packed.p, &packed.value, &packed.n};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(fill, 1, 1, 1, 128, 1, 1, 0, nullptr, parameters, extra));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(fill, 1, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST_F(ContextTest, StaticAndDynamicSharedMemory) {
  CUdeviceptr p = allocate(512);
  std::vector<uint32_t> words(128);
  for (uint32_t i = 0; i < 128; ++i) words[i] = i;
  OK(cuMemcpyHtoD(p, words.data(), 512));
  OK(launch(function("shared_reverse"), 128, {&p}, nullptr, 1, 512));
  OK(cuMemcpyDtoH(words.data(), p, 512));
  for (uint32_t i = 0; i < 128; ++i) ASSERT_EQ(words[i], 127 - i);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            launch(function("shared_reverse"), 128, {&p}, nullptr, 1, 49152));
}

// Two .extern arrays with a size, a static one and an .extern one without: addresses as the real
// driver lays them out, from the beginning of shared memory.
TEST_F(ContextTest, ExternSharedArraysWithASizeAreStatic) {
  const char* const text = R"ptx(
.version 7.1
.target sm_75
.address_size 64
.extern .shared .align 8 .b8 first[256];
.extern .shared .align 8 .b8 second[512];
.extern .shared .align 16 .b8 rest[];
.visible .entry places(.param .u64 out)
{
  .reg .b64 %out, %a;
  .reg .b32 %r;
  ld.param.u64 %out, [out];
  cvta.to.global.u64 %out, %out;
  mov.u64 %a, second;
  st.global.u64 [%out], %a;
  mov.u64 %a, rest;
  st.global.u64 [%out + 8], %a;
  mov.u64 %a, first;
  st.shared.u32 [%a + 252], 41;
  ld.shared.u32 %r, [%a + 252];
  st.global.u32 [%out + 16], %r;
  mov.u64 %a, first;
  st.global.u64 [%out + 24], %a;
  ret;
}
)ptx";
  CUmodule module;
  OK(cuModuleLoadData(&module, text));
  CUfunction places;
  OK(cuModuleGetFunction(&places, module, "places"));
  int own = 0, dynamic = 0;
  OK(cuFuncGetAttribute(&own, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, places));
  OK(cuFuncGetAttribute(&dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, places));
  EXPECT_EQ(own, 768);
  EXPECT_EQ(dynamic, 48 * 1024 - 768);
  CUdeviceptr out = allocate(32);
  for (const unsigned shared : {0u, 64u}) {
    OK(launch(places, 1, {&out}, nullptr, 1, shared));
    uint64_t seen[4] = {};
    OK(cuMemcpyDtoH(seen, out, sizeof seen));
    EXPECT_EQ(seen[0] - seen[3], 256u);
    EXPECT_EQ(seen[1] - seen[3], 768u);
    EXPECT_EQ(static_cast<uint32_t>(seen[2]), 41u);
  }
  OK(cuModuleUnload(module));
}

TEST_F(ContextTest, StaticSharedMemoryAboveTheUsualLimit) {
  const char* const text =
      ".version 7.1\n.target sm_75\n.address_size 64\n.shared .align 8 .b8 big[60000];\n"
      ".visible .entry f()\n{\n  st.shared.u32 [big + 59996], 1;\n  ret;\n}\n";
  CUmodule module;
  OK(cuModuleLoadData(&module, text));
  CUfunction f;
  OK(cuModuleGetFunction(&f, module, "f"));
  int most = 0, dynamic = 0;
  OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
  OK(cuFuncGetAttribute(&dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f));
  EXPECT_EQ(dynamic, most - 60000);
  OK(launch(f, 1, {}, nullptr));
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(module));
}

TEST_F(ContextTest, ImpossibleLaunchesAreRefusedAtOnce) {
  CUfunction f = function("bump");
  const auto with = [&](unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz) {
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, 0, nullptr, nullptr, nullptr);
  };
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with(0, 1, 1, 1, 1, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with(1, 0, 1, 1, 1, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with(1, 1, 1, 1, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with(1, 1, 1, 1025, 1, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with(1, 1, 1, 32, 33, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with(1, 1, 1, 1, 1, 65));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with(1, 65536, 1, 1, 1, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with(0x80000000u, 1, 1, 1, 1, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  const auto no_stream = reinterpret_cast<CUstream>(uintptr_t{0x1234});
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, no_stream, nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            cuLaunchCooperativeKernel(f, 1000, 1, 1, 1024, 1, 1, 0, nullptr, nullptr));
  OK(cuLaunchCooperativeKernel(f, 8, 1, 1, 32, 1, 1, 0, nullptr, nullptr));
  OK(cuCtxSynchronize());
}

// A kernel that waits for another one in another stream gets what it waits for.
TEST_F(ContextTest, KernelsOfTwoStreamsRunAtTheSameTime) {
  CUstream first = nullptr, second = nullptr;
  OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  PinnedWords flag(1);
  CUdeviceptr address = flag.device();
  uint32_t one = 1;
  OK(launch(function("spin"), 64, {&address}, first, 8));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
  OK(launch(function("write_at"), 1, {&address, &one}, second));
  OK(cuStreamSynchronize(first));
}

TEST_F(ContextTest, TheOldInterface) {
  CUfunction f = function("fill");
  CUdeviceptr p = allocate(400);
  OK(cuFuncSetBlockShape(f, 50, 1, 1));
  OK(cuFuncSetSharedSize(f, 0));
  OK(cuParamSetv(f, 0, &p, sizeof p));
  OK(cuParamSeti(f, 8, 77));
  OK(cuParamSeti(f, 12, 100));
  OK(cuLaunchGrid(f, 2, 1));
  EXPECT_EQ(read_word(p + 396), 77u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuParamSeti(f, -1, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuParamSeti(f, 4094, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape(f, 0, 1, 1));
  OK(cuParamSetSize(f, 12));
  OK(cuParamSeti(f, 8, 78));
  OK(cuLaunch(f));  // the number of words is missing: it is 0
  EXPECT_EQ(read_word(p), 77u);
}

TEST_F(ContextTest, LaunchWithAttributes) {
  CUfunction f = function("bump");
  CUevent event = nullptr;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[0].value.cooperative = 1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attributes[1].value.launchCompletionEvent.event = event;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 10;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  OK(cuLaunchKernelEx(&config, f, nullptr, nullptr));
  OK(cuEventSynchronize(event));
  CUdeviceptr counter = 0;
  OK(cuModuleGetGlobal(&counter, nullptr, module_, "counter"));
  EXPECT_EQ(read_word(counter), 50u);
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].value.clusterDim.x = 2;
  attributes[1].value.clusterDim.y = attributes[1].value.clusterDim.z = 1;
  EXPECT_CU(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, f, nullptr, nullptr));
  config.gridDimX = 4;
  OK(cuLaunchKernelEx(&config, f, nullptr, nullptr));
  attributes[1].id = static_cast<CUlaunchAttributeID>(4711);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(&config, f, nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(nullptr, f, nullptr, nullptr));
}

}  // namespace
}  // namespace fargpu::sim_test
