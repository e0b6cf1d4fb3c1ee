#include <thread>

#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, StackOfTheThread) {
  CUcontext second = nullptr, current = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 1));
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, second);
  CUdevice device = -1;
  OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 1);
  OK(cuCtxPopCurrent(&current));
  EXPECT_EQ(current, second);
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
  std::thread([&] {
    CUcontext other = context_;
    EXPECT_CU(CUDA_SUCCESS, cuCtxGetCurrent(&other));
    EXPECT_EQ(other, nullptr);
    CUdeviceptr p = 0;
    EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&p, 16));
    EXPECT_CU(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    EXPECT_CU(CUDA_SUCCESS, cuMemAlloc(&p, 16));
    EXPECT_CU(CUDA_SUCCESS, cuMemFree(p));
  }).join();
  OK(cuCtxDestroy(second));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(second));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(second));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(second));
}

TEST_F(ContextTest, CallsInADestroyedContextAreRefused) {
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 0));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, 0));
  CUdeviceptr p = allocate(1024);
  std::thread([&] {
    EXPECT_CU(CUDA_SUCCESS, cuCtxSetCurrent(second));
    std::thread([&] { EXPECT_CU(CUDA_SUCCESS, cuCtxDestroy(second)); }).join();
    EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    CUdeviceptr q = 0;
    EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&q, 16));
  }).join();
  OK(cuCtxSetCurrent(context_));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
}

TEST_F(ContextTest, DestroyingFreesWhatTheContextOwned) {
  size_t before = 0, after = 0, total = 0;
  OK(cuMemGetInfo(&before, &total));
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 0));
  allocate(10 << 20);
  function("fill");
  void* host = nullptr;
  OK(cuMemHostAlloc(&host, 4096, 0));
  OK(cuMemGetInfo(&after, &total));
  EXPECT_GE(before - after, size_t{10} << 20);
  OK(cuCtxDestroy(second));
  module_ = nullptr;
  OK(cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
}

TEST_F(ContextTest, PrimaryContextCountsReferences) {
  unsigned flags = 0;
  int active = -1;
  CUcontext first = nullptr, again = nullptr;
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(active, 0);
  OK(cuDevicePrimaryCtxRetain(&first, 1));
  OK(cuDevicePrimaryCtxRetain(&again, 1));
  EXPECT_EQ(first, again);
  OK(cuCtxSetCurrent(first));
  CUdeviceptr p = allocate(100);
  OK(cuDevicePrimaryCtxRelease(1));
  OK(cuMemFree(p));
  p = allocate(100);
  OK(cuDevicePrimaryCtxRelease(1));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(1));
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&p, 16));
  OK(cuDevicePrimaryCtxRetain(&again, 1));
  EXPECT_EQ(first, again);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));  // it went with the context
  OK(cuDevicePrimaryCtxReset(1));
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(active, 0);
  OK(cuDevicePrimaryCtxRelease(1));
  OK(cuCtxSetCurrent(context_));
}

// As with a real driver: a reset empties the context and leaves the references.
TEST_F(ContextTest, AResetLeavesTheReferences) {
  unsigned flags = 0;
  int active = -1;
  CUcontext primary = nullptr;
  OK(cuDevicePrimaryCtxRetain(&primary, 1));
  for (int round = 0; round < 2; ++round) {
    OK(cuDevicePrimaryCtxReset(1));
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    EXPECT_EQ(active, 0);
  }
  OK(cuDevicePrimaryCtxRetain(&primary, 1));
  OK(cuDevicePrimaryCtxRelease(1));
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(active, 1);
  OK(cuDevicePrimaryCtxRelease(1));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(1));
}

TEST_F(ContextTest, UsageCounts) {
  CUcontext same = nullptr, second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 0));
  OK(cuCtxAttach(&same, 0));
  EXPECT_EQ(same, second);
  OK(cuCtxDetach(second));
  OK(cuCtxSynchronize());
  OK(cuCtxDetach(second));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(second));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxAttach(&same, 1));
}

TEST_F(ContextTest, SetCurrentWorksBeforeRetain) {
  CUcontext handle = nullptr;
  OK(cuDevicePrimaryCtxRetain(&handle, 0));
  OK(cuDevicePrimaryCtxRelease(0));
  OK(cuCtxSetCurrent(handle));
  CUdeviceptr p = 0;
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&p, 16));
  CUcontext again = nullptr;
  OK(cuDevicePrimaryCtxRetain(&again, 0));
  OK(cuMemAlloc(&p, 16));
  OK(cuDevicePrimaryCtxRelease(0));
  OK(cuCtxSetCurrent(context_));
}

TEST_F(ContextTest, LimitsAndPreferences) {
  size_t value = 0;
  OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
  EXPECT_EQ(value, size_t{8} << 20);
  OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, size_t{16} << 20));
  OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
  EXPECT_EQ(value, size_t{16} << 20);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(&value, static_cast<CUlimit>(99)));
  EXPECT_CU(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit(&value, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, size_t{1} << 30));
  EXPECT_CU(CUDA_ERROR_NOT_PERMITTED, cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 1024));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(nullptr, CU_LIMIT_STACK_SIZE));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxSetCacheConfig(static_cast<CUfunc_cache>(9)));
  OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
  OK(cuCtxGetCacheConfig(&config));
  EXPECT_EQ(config, CU_FUNC_CACHE_PREFER_L1);
  unsigned long long id = 0, other = 0;
  OK(cuCtxGetId(context_, &id));
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, CU_CTX_SCHED_BLOCKING_SYNC, 0));
  OK(cuCtxGetId(second, &other));
  EXPECT_NE(id, other);
  unsigned flags = 0;
  OK(cuCtxGetFlags(&flags));
  EXPECT_EQ(flags, unsigned{CU_CTX_SCHED_BLOCKING_SYNC});
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuCtxCreate(&second, nullptr, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, 0));
  OK(cuCtxDestroy(second));
}

}  // namespace
}  // namespace fargpu::sim_test
