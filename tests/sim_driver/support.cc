#include "tests/sim_driver/support.h"

#include <atomic>
#include <cstdlib>

namespace fargpu::sim_test {
namespace {

// Before anything calls cuInit.
[[maybe_unused]] const bool kConfigured = [] {
  setenv("FARGPU_SIM_GPUS", "2", 1);
  setenv("FARGPU_SIM_MEMORY", "256M", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("FARGPU_SIM_COMPUTE_CAPABILITY");
  return true;
}();

}  // namespace

const char* const kKernels = R"ptx(
.version 7.5
.target sm_75
.address_size 64

.visible .const .align 4 .u32 factor = 3;
.visible .global .align 4 .u32 counter = 40;
.extern .shared .align 4 .b8 dynamic[];

.visible .entry fill(.param .u64 p, .param .u32 value, .param .u32 n)
{
  .reg .pred %p1;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r3, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r3, %r2;
  @%p1 bra done;
  mul.wide.u32 %rd2, %r3, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
done:
  ret;
}

.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  .reg .pred %p1;
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra done;
  mul.wide.u32 %rd4, %r2, 4;
  add.s64 %rd5, %rd1, %rd4;
  add.s64 %rd6, %rd2, %rd4;
  add.s64 %rd7, %rd3, %rd4;
  ld.global.u32 %r5, [%rd5];
  ld.global.u32 %r6, [%rd6];
  add.s32 %r7, %r5, %r6;
  st.global.u32 [%rd7], %r7;
done:
  ret;
}

.visible .entry write_at(.param .u64 address, .param .u32 value)
{
  .reg .b32 %r1;
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [address];
  ld.param.u32 %r1, [value];
  st.global.u32 [%rd1], %r1;
  ret;
}

.visible .entry read_at(.param .u64 address, .param .u64 out)
{
  .reg .b32 %r1;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [address];
  ld.param.u64 %rd2, [out];
  ld.global.u32 %r1, [%rd1];
  st.global.u32 [%rd2], %r1;
  ret;
}

.visible .entry trap()
{
  trap;
  ret;
}

.visible .entry bump()
{
  .reg .b32 %r1;
  atom.global.add.u32 %r1, [counter], 1;
  ret;
}

.visible .entry scale(.param .u64 p)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [%rd1];
  ld.const.u32 %r2, [factor];
  mul.lo.u32 %r3, %r1, %r2;
  st.global.u32 [%rd1], %r3;
  ret;
}

.visible .entry spin(.param .u64 flag)
{
  .reg .pred %p1;
  .reg .b32 %r1;
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [flag];
again:
  ld.acquire.sys.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}

.visible .entry shared_reverse(.param .u64 p)
{
  .shared .align 4 .b8 fixed[512];
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  shl.b32 %r3, %r1, 2;
  mov.u32 %r4, fixed;
  add.s32 %r4, %r4, %r3;
  st.shared.u32 [%r4], %r2;
  bar.sync 0;
  mov.u32 %r5, fixed;
  sub.s32 %r6, 508, %r3;
  add.s32 %r5, %r5, %r6;
  ld.shared.u32 %r2, [%r5];
  mov.u32 %r7, dynamic;
  add.s32 %r7, %r7, %r3;
  st.shared.u32 [%r7], %r2;
  bar.sync 0;
  ld.shared.u32 %r2, [%r7];
  st.global.u32 [%rd3], %r2;
  ret;
}
)ptx";

std::string name_of(CUresult result) {
  const char* name = nullptr;
  return cuGetErrorName(result, &name) == CUDA_SUCCESS ? name : "error " + std::to_string(result);
}

void ContextTest::SetUp() {
  OK(cuInit(0));
  OK(cuCtxCreate(&context_, nullptr, 0, 0));
}

void ContextTest::TearDown() {
  if (context_ != nullptr) {
    EXPECT_CU(CUDA_SUCCESS, cuCtxDestroy(context_));
  }
  while (cuCtxPopCurrent(nullptr) == CUDA_SUCCESS) {
  }
}

CUfunction ContextTest::function(const char* name) {
  CUfunction found = nullptr;
  if (module_ == nullptr) {
    EXPECT_CU(CUDA_SUCCESS, cuModuleLoadData(&module_, kKernels));
  }
  EXPECT_CU(CUDA_SUCCESS, cuModuleGetFunction(&found, module_, name));
  return found;
}

CUdeviceptr ContextTest::allocate(size_t bytes) {
  CUdeviceptr p = 0;
  EXPECT_CU(CUDA_SUCCESS, cuMemAlloc(&p, bytes));
  return p;
}

CUresult ContextTest::launch(CUfunction function, unsigned threads, std::vector<void*> parameters,
                             CUstream stream, unsigned blocks, unsigned shared) {
  return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, parameters.data(),
                        nullptr);
}

CUresult ContextTest::fill(CUdeviceptr p, uint32_t value, uint32_t n, CUstream stream) {
  return launch(function("fill"), 128, {&p, &value, &n}, stream, (n + 127) / 128);
}

uint32_t ContextTest::read_word(CUdeviceptr p) {
  uint32_t word = 0;
  EXPECT_CU(CUDA_SUCCESS, cuMemcpyDtoH(&word, p, sizeof word));
  return word;
}

PinnedWords::PinnedWords(size_t count) {
  void* memory = nullptr;
  EXPECT_CU(CUDA_SUCCESS, cuMemHostAlloc(&memory, count * sizeof(uint32_t), 0));
  words_ = static_cast<uint32_t*>(memory);
}

PinnedWords::~PinnedWords() { cuMemFreeHost(words_); }

void PinnedWords::store(size_t index, uint32_t value) {
  std::atomic_ref<uint32_t>(words_[index]).store(value, std::memory_order_release);
}

uint32_t PinnedWords::load(size_t index) const {
  return std::atomic_ref<uint32_t>(words_[index]).load(std::memory_order_acquire);
}

}  // namespace fargpu::sim_test
