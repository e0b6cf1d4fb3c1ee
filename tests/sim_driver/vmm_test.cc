#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

constexpr size_t kChunk = size_t{2} << 20;

class VmmTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access_ = {properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  CUmemGenericAllocationHandle create(size_t bytes = kChunk) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CU(CUDA_SUCCESS, cuMemCreate(&handle, bytes, &properties_, 0));
    return handle;
  }
  CUdeviceptr reserve(size_t bytes, CUdeviceptr wanted = 0) {
    CUdeviceptr address = 0;
    EXPECT_CU(CUDA_SUCCESS, cuMemAddressReserve(&address, bytes, 0, wanted, 0));
    return address;
  }
  CUmemAllocationProp properties_{};
  CUmemAccessDesc access_{};
};

TEST_F(VmmTest, MapUseUnmap) {
  size_t granularity = 0, before = 0, now = 0;
  function("fill");  // has variables in device memory
  OK(cuMemGetInfo(&before, nullptr));
  OK(cuMemGetAllocationGranularity(&granularity, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(granularity, kChunk);
  const CUdeviceptr range = reserve(4 * kChunk);
  const auto first = create(), second = create();
  OK(cuMemGetInfo(&now, nullptr));
  EXPECT_EQ(before - now, 2 * kChunk);
  OK(cuMemMap(range, kChunk, 0, first, 0));
  OK(cuMemMap(range + kChunk, kChunk, 0, second, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(range, kChunk, 0, second, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(range, 1, 16));
  OK(cuMemSetAccess(range, 2 * kChunk, &access_, 1));
  OK(cuMemsetD8(range, 3, 2 * kChunk));  // over the seam
  OK(fill(range + kChunk, 9, 16));
  EXPECT_EQ(read_word(range + kChunk + 60), 9u);
  EXPECT_EQ(read_word(range + kChunk - 4), 0x03030303u);
  unsigned long long flags = 0;
  OK(cuMemGetAccess(&flags, &properties_.location, range));
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(range, 4 * kChunk));
  OK(cuMemUnmap(range, 4 * kChunk));  // holes do not matter
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(range, kChunk));
  // Contents stay with the physical memory.
  OK(cuMemMap(range + 3 * kChunk, kChunk, 0, second, 0));
  OK(cuMemSetAccess(range + 3 * kChunk, kChunk, &access_, 1));
  EXPECT_EQ(read_word(range + 3 * kChunk), 9u);
  OK(cuMemUnmap(range + 3 * kChunk, kChunk));
  OK(cuMemRelease(first));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemRelease(first));
  OK(cuMemRelease(second));
  OK(cuMemAddressFree(range, 4 * kChunk));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(range, 4 * kChunk));
  OK(cuMemGetInfo(&now, nullptr));
  EXPECT_EQ(before, now);
}

TEST_F(VmmTest, OneMemoryAtTwoAddresses) {
  const CUdeviceptr range = reserve(2 * kChunk);
  const auto memory = create();
  OK(cuMemMap(range, kChunk, 0, memory, 0));
  OK(cuMemMap(range + kChunk, kChunk, 0, memory, 0));
  OK(cuMemRelease(memory));  // the mappings keep it
  OK(cuMemSetAccess(range, 2 * kChunk, &access_, 1));
  OK(cuMemsetD32(range + 100 * 4, 0x1234, 1));
  EXPECT_EQ(read_word(range + kChunk + 400), 0x1234u);
  CUmemGenericAllocationHandle again = 0;
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range + 5)));
  CUmemAllocationProp found{};
  OK(cuMemGetAllocationPropertiesFromHandle(&found, again));
  EXPECT_EQ(found.location.id, 0);
  OK(cuMemRelease(again));
  OK(cuMemUnmap(range, 2 * kChunk));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range)));
  OK(cuMemAddressFree(range, 2 * kChunk));
}

TEST_F(VmmTest, AccessIsPerDeviceAndMayBeReadOnly) {
  CUdeviceptr range = reserve(kChunk), out = allocate(4);
  const auto memory = create();
  OK(cuMemMap(range, kChunk, 0, memory, 0));
  access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  OK(cuMemSetAccess(range, kChunk, &access_, 1));
  OK(launch(function("read_at"), 1, {&range, &out}));
  OK(cuCtxSynchronize());
  CUmemLocation other{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  unsigned long long flags = 99;
  OK(cuMemGetAccess(&flags, &other, range));
  EXPECT_EQ(flags, 0u);
  OK(fill(range, 1, 1));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  OK(cuMemUnmap(range, kChunk));
  OK(cuMemRelease(memory));
  OK(cuMemAddressFree(range, kChunk));
}

TEST_F(VmmTest, ReservationsAtWantedAddresses) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer owns most addresses";
#endif
  const CUdeviceptr wanted = CUdeviceptr{0x200000000000};
  const CUdeviceptr range = reserve(size_t{1} << 40, wanted);
  EXPECT_EQ(range, wanted);
  const CUdeviceptr other = reserve(kChunk, wanted);  // taken: somewhere else
  EXPECT_NE(other, wanted);
  OK(cuMemAddressFree(other, kChunk));
  OK(cuMemAddressFree(range, size_t{1} << 40));
}

TEST_F(VmmTest, BadArguments) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 0, 0, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, kChunk + 1, 0, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, kChunk, 3, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, kChunk + 1, &properties_, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, kChunk, nullptr, 0));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 2 * kMemory, &properties_, 0));
  const CUdeviceptr range = reserve(2 * kChunk);
  handle = create();
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(range, 2 * kChunk, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(range, kChunk, kChunk, handle, 0));
  const auto large = create(2 * kChunk);
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(range, kChunk, 0, large, 0));
  OK(cuMemMap(range, 2 * kChunk, 0, large, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(range, kChunk));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(range + kChunk, kChunk));
  OK(cuMemUnmap(range, 2 * kChunk));
  OK(cuMemRelease(large));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(range + 2 * kChunk, kChunk, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(range + 1, kChunk, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(range, kChunk, 0, 4711, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(range, kChunk, &access_, 1));
  access_.location.id = 9;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(range, kChunk, &access_, 1));
  properties_.location.id = 9;
  CUmemGenericAllocationHandle none = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&none, kChunk, &properties_, 0));
  properties_.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&none, kChunk, &properties_, 0));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(range, 2 * kChunk));
}

}  // namespace
}  // namespace fargpu::sim_test
