#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

class PoolTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  cuuint64_t get(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 4711;
    EXPECT_CU(CUDA_SUCCESS, cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
  }
  CUmemoryPool make_pool(size_t max_bytes = 0) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.maxSize = max_bytes;
    CUmemoryPool pool = nullptr;
    EXPECT_CU(CUDA_SUCCESS, cuMemPoolCreate(&pool, &properties));
    return pool;
  }
  CUstream stream_ = nullptr;
};

TEST_F(PoolTest, AllocatesAndFreesInStreamOrder) {
  CUdeviceptr p = 0;
  OK(cuMemAllocAsync(&p, 4096, stream_));
  OK(fill(p, 8, 1024, stream_));
  std::vector<uint32_t> out(1024);
  OK(cuMemcpyDtoHAsync(out.data(), p, 4096, stream_));
  EXPECT_EQ(out[1023], 8u);
  PinnedWords gate(1);
  OK(cuStreamWaitValue32(stream_, gate.device(), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(fill(p, 9, 1024, stream_));
  OK(cuMemFreeAsync(p, stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemFreeAsync(p, stream_));  // once is enough, even before it happens
  gate.store(0, 1);
  OK(cuStreamSynchronize(stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(out.data(), p, 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(0x1234, stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(nullptr, 16, stream_));
  OK(cuMemAllocAsync(&p, 0, stream_));
}

TEST_F(PoolTest, CountsAndKeepsUpToTheThreshold) {
  size_t before = 0, now = 0;
  OK(cuMemGetInfo(&before, nullptr));
  CUmemoryPool pool = make_pool();
  cuuint64_t threshold = 1 << 20;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  CUdeviceptr p = 0, q = 0;
  OK(cuMemAllocFromPoolAsync(&p, 1 << 20, pool, stream_));
  OK(cuMemAllocFromPoolAsync(&q, 2 << 20, pool, stream_));
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), cuuint64_t{3} << 20);
  OK(cuMemFreeAsync(q, stream_));
  OK(cuMemFreeAsync(p, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), cuuint64_t{3} << 20);
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), cuuint64_t{1} << 20);
  CUdeviceptr again = 0;
  OK(cuMemAllocFromPoolAsync(&again, 1 << 20, pool, stream_));
  EXPECT_EQ(again, p);  // the kept block
  OK(cuMemFree(again));
  OK(cuMemPoolTrimTo(pool, 0));
  OK(cuMemGetInfo(&now, nullptr));
  EXPECT_EQ(before, now);
  cuuint64_t zero = 0, one = 1;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero));
  OK(cuMemPoolDestroy(pool));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
}

TEST_F(PoolTest, MemoryThatIsAboutToBeFreedCountsAsFree) {
  for (int round = 0; round < 4; ++round) {
    CUdeviceptr p = 0;
    OK(cuMemAllocAsync(&p, kMemory / 4 * 3, stream_));
    OK(cuMemsetD8Async(p, 1, 4096, stream_));
    OK(cuMemFreeAsync(p, stream_));
  }
  CUdeviceptr p = 0;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&p, kMemory * 2, stream_));
}

TEST_F(PoolTest, ADestroyedPoolLivesUntilItsMemoryIsFreed) {
  size_t before = 0, now = 0;
  OK(cuMemGetInfo(&before, nullptr));
  CUmemoryPool pool = make_pool();
  CUdeviceptr p = 0;
  OK(cuMemAllocFromPoolAsync(&p, 1 << 20, pool, stream_));
  OK(cuMemPoolDestroy(pool));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&p, 16, pool, stream_));
  OK(cuMemsetD8(p, 1, 1 << 20));
  OK(cuMemFree(p));
  OK(cuMemGetInfo(&now, nullptr));
  EXPECT_EQ(before, now);
}

TEST_F(PoolTest, DefaultAndCurrentPool) {
  CUmemoryPool standard = nullptr, current = nullptr;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  OK(cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(standard, current);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(standard));
  CUmemoryPool own = make_pool(1 << 20);
  OK(cuDeviceSetMemPool(0, own));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(1, own));
  CUdeviceptr p = 0;
  OK(cuMemAllocAsync(&p, 1 << 20, stream_));
  CUmemoryPool of = nullptr;
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
  EXPECT_EQ(of, own);
  CUdeviceptr more = 0;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&more, 1, stream_));  // its own maximum
  OK(cuMemFree(p));
  OK(cuMemPoolDestroy(own));
  OK(cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(standard, current);
  CUmemPoolProps properties{};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&own, &properties));
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 7};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&own, &properties));
}

TEST_F(PoolTest, PeersNeedAccess) {
  CUmemoryPool pool = make_pool();
  CUdeviceptr p = 0;
  OK(cuMemAllocFromPoolAsync(&p, 64, pool, stream_));
  CUmemLocation peer{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemPoolGetAccess(&flags, pool, &peer));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CUmemAccessDesc access{peer, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemPoolSetAccess(pool, &access, 1));
  OK(cuMemPoolGetAccess(&flags, pool, &peer));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUmodule first_module = module_;
  module_ = nullptr;
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 1));
  OK(fill(p, 4, 16));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_word(p + 60), 4u);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  OK(cuMemPoolSetAccess(pool, &access, 1));
  OK(fill(p, 4, 16));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  OK(cuCtxDestroy(second));
  module_ = first_module;
  OK(cuMemPoolDestroy(pool));
  OK(cuMemFree(p));
}

}  // namespace
}  // namespace fargpu::sim_test
