#include <memory>

#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, AFaultIsStickyUntilTheContextGoes) {
  CUdeviceptr p = allocate(4), outside = p + (1 << 20), q = 0;
  uint32_t value = 1;
  CUfunction write_at = function("write_at");
  OK(launch(write_at, 1, {&outside, &value}));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&q, 16));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyDtoH(&value, p, 4));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(nullptr));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, launch(write_at, 1, {&p, &value}));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(p));
  int count = 0;
  OK(cuDeviceGetCount(&count));
  // Another context of the same device is not touched.
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 0));
  OK(cuMemAlloc(&q, 16));
  OK(cuCtxDestroy(second));
}

TEST_F(ContextTest, ResettingThePrimaryContextHealsIt) {
  CUcontext primary = nullptr;
  OK(cuDevicePrimaryCtxRetain(&primary, 1));
  OK(cuCtxPushCurrent(primary));
  OK(launch(function("trap"), 1, {}));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  OK(cuDevicePrimaryCtxReset(1));
  module_ = nullptr;
  OK(cuDevicePrimaryCtxRetain(&primary, 1));
  CUdeviceptr p = allocate(16);
  OK(fill(p, 3, 4));
  EXPECT_EQ(read_word(p + 12), 3u);
  for (int i = 0; i < 2; ++i) OK(cuDevicePrimaryCtxRelease(1));
  OK(cuCtxPopCurrent(nullptr));
}

// One byte past an allocation belongs to nobody, however close the next one is.
TEST_F(ContextTest, NeighboursAreToldApart) {
  CUdeviceptr first = allocate(256), second = allocate(256);
  ASSERT_NE(first, second);
  CUdeviceptr out = allocate(4), last = first + 252, past = first + 256;
  OK(launch(function("read_at"), 1, {&last, &out}));
  OK(cuCtxSynchronize());
  OK(launch(function("read_at"), 1, {&past, &out}));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(ContextTest, FreedMemoryIsIllegal) {
  function("fill");  // loaded first, so that its variables do not take the freed place
  CUdeviceptr p = allocate(1 << 20);
  OK(cuMemFree(p));
  OK(fill(p, 1, 1));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(ContextTest, MisalignedAccess) {
  CUdeviceptr p = allocate(16), odd = p + 2;
  uint32_t value = 1;
  OK(launch(function("write_at"), 1, {&odd, &value}));
  EXPECT_CU(CUDA_ERROR_MISALIGNED_ADDRESS, cuCtxSynchronize());
}

TEST_F(ContextTest, HostMemoryThatCudaDoesNotKnowIsIllegal) {
  auto word = std::make_unique<uint32_t>(0);
  CUdeviceptr p = reinterpret_cast<CUdeviceptr>(word.get());
  uint32_t value = 1;
  OK(launch(function("write_at"), 1, {&p, &value}));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT_EQ(*word, 0u);
}

TEST_F(ContextTest, WorkBehindAFaultIsNotDone) {
  PinnedWords words(2);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUfunction trap = function("trap");
  OK(cuStreamWaitValue32(stream, words.device(0), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(launch(trap, 1, {}, stream));
  OK(cuMemsetD32Async(words.device(1), 9, 1, stream));
  words.store(0, 1);
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
  EXPECT_EQ(words.load(1), 0u);
}

}  // namespace
}  // namespace fargpu::sim_test
