#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, AllocateFreeAndAccount) {
  size_t before = 0, now = 0, total = 0;
  OK(cuMemGetInfo(&before, &total));
  EXPECT_EQ(total, kMemory);
  CUdeviceptr p = allocate(1 << 20);
  EXPECT_EQ(p % 512, 0u);
  OK(cuMemGetInfo(&now, nullptr));
  EXPECT_EQ(before - now, size_t{1} << 20);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(p + 256));
  OK(cuMemFree(p));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
  OK(cuMemFree(0));
  OK(cuMemGetInfo(&now, &total));
  EXPECT_EQ(before, now);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&p, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(nullptr, 16));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, kMemory + 1));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, SIZE_MAX));
}

TEST_F(ContextTest, TheWholeMemoryInPiecesThenNoMore) {
  size_t available = 0;
  OK(cuMemGetInfo(&available, nullptr));
  std::vector<CUdeviceptr> pieces;
  CUdeviceptr p = 0;
  while (cuMemAlloc(&p, 1 << 20) == CUDA_SUCCESS) pieces.push_back(p);
  EXPECT_EQ(pieces.size(), available >> 20);
  for (CUdeviceptr piece : pieces) OK(cuMemFree(piece));
  size_t after = 0;
  OK(cuMemGetInfo(&after, nullptr));
  EXPECT_EQ(available, after);
}

TEST_F(ContextTest, AddressRange) {
  CUdeviceptr p = allocate(1000), base = 0;
  size_t bytes = 0;
  OK(cuMemGetAddressRange(&base, &bytes, p + 999));
  EXPECT_EQ(base, p);
  EXPECT_EQ(bytes, 1000u);
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &bytes, p + 1000));
  OK(cuMemGetAddressRange(nullptr, nullptr, p));
}

TEST_F(ContextTest, Pitch) {
  CUdeviceptr p = 0;
  size_t pitch = 0;
  OK(cuMemAllocPitch(&p, &pitch, 700, 10, 4));
  EXPECT_EQ(pitch, 1024u);
  size_t bytes = 0;
  OK(cuMemGetAddressRange(nullptr, &bytes, p));
  EXPECT_EQ(bytes, 10240u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&p, &pitch, 700, 10, 5));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&p, &pitch, 0, 10, 4));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch(&p, &pitch, 1 << 20, SIZE_MAX / 1024, 4));
}

TEST_F(ContextTest, ManagedMemoryIsSharedWithTheHost) {
  CUdeviceptr p = 0;
  OK(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
  auto* words = reinterpret_cast<uint32_t*>(p);
  words[5] = 1;
  OK(fill(p, 77, 4));
  OK(cuCtxSynchronize());
  EXPECT_EQ(words[3], 77u);
  EXPECT_EQ(words[5], 1u);
  unsigned managed = 0;
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
  EXPECT_EQ(managed, 1u);
  OK(cuMemFree(p));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&p, 4096, 99));
}

}  // namespace
}  // namespace fargpu::sim_test
