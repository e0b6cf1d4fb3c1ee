#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, PinnedMemoryIsUsableByKernelsAtItsAddress) {
  PinnedWords words(64);
  OK(fill(words.device(), 9, 64));
  OK(cuCtxSynchronize());
  EXPECT_EQ(words.load(63), 9u);
  CUdeviceptr device = 0;
  OK(cuMemHostGetDevicePointer(&device, words.data() + 3, 0));
  EXPECT_EQ(device, words.device(3));
  unsigned flags = 0;
  OK(cuMemHostGetFlags(&flags, words.data()));
  EXPECT_EQ(flags, unsigned{CU_MEMHOSTALLOC_DEVICEMAP});
}

TEST_F(ContextTest, RegisteredMemory) {
  std::vector<uint32_t> words(2000);
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(words.data()));
  OK(cuMemHostRegister(words.data(), 4000, 0));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            cuMemHostRegister(words.data() + 10, 100, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(words.data() + 10));
  OK(fill(reinterpret_cast<CUdeviceptr>(words.data()), 5, 1000));
  OK(cuCtxSynchronize());
  EXPECT_EQ(words[999], 5u);
  EXPECT_EQ(words[1000], 0u);
  OK(cuMemHostUnregister(words.data()));
  OK(fill(reinterpret_cast<CUdeviceptr>(words.data()), 5, 1));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(ContextTest, ReadOnlyRegistrationCannotBeWritten) {
  std::vector<uint32_t> words(16, 8);
  OK(cuMemHostRegister(words.data(), 64, CU_MEMHOSTREGISTER_READ_ONLY));
  CUdeviceptr from = reinterpret_cast<CUdeviceptr>(words.data()), out = allocate(4);
  OK(launch(function("read_at"), 1, {&from, &out}));
  EXPECT_EQ(read_word(out), 8u);
  OK(fill(from, 1, 1));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(ContextTest, BadHostMemoryArguments) {
  void* host = this;
  OK(cuMemAllocHost(&host, 0));
  EXPECT_EQ(host, nullptr);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocHost(nullptr, 16));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&host, 16, 0xff00));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(nullptr, 16, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(this, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(this, SIZE_MAX, 0));
  OK(cuMemFreeHost(nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(this));
  OK(cuMemAllocHost(&host, 16));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(host, 16, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(host));
  OK(cuMemFreeHost(host));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
}

}  // namespace
}  // namespace fargpu::sim_test
