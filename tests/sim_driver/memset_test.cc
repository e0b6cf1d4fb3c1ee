#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, FillsOfAllWidths) {
  const CUdeviceptr p = allocate(4096);
  std::vector<unsigned char> bytes(4096);
  OK(cuMemsetD8(p, 0, 4096));
  OK(cuMemsetD8(p + 1, 0x11, 3));
  OK(cuMemsetD16(p + 8, 0x2233, 2));
  OK(cuMemsetD32(p + 16, 0x44556677, 2));
  OK(cuMemcpyDtoH(bytes.data(), p, 4096));
  const std::vector<unsigned char> expected = {0,    0x11, 0x11, 0x11, 0,    0,    0, 0,    0x33,
                                               0x22, 0x33, 0x22, 0,    0,    0,    0, 0x77, 0x66,
                                               0x55, 0x44, 0x77, 0x66, 0x55, 0x44, 0, 0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(bytes[i], expected[i]) << i;
}

TEST_F(ContextTest, FillsOfRows) {
  const CUdeviceptr p = allocate(4096);
  OK(cuMemsetD8(p, 0, 4096));
  OK(cuMemsetD2D8Async(p, 100, 1, 30, 5, nullptr));
  OK(cuMemsetD2D16(p + 1000, 100, 0x0202, 15, 5));
  OK(cuMemsetD2D32(p + 2000, 200, 0x03030303, 10, 5));
  std::vector<unsigned char> bytes(4096);
  OK(cuMemcpyDtoH(bytes.data(), p, 4096));
  size_t sum = 0;
  for (unsigned char byte : bytes) sum += byte;
  EXPECT_EQ(sum, 30 * 5 * 1 + 30 * 5 * 2 + 40 * 5 * 3u);
  EXPECT_EQ(bytes[29], 1);
  EXPECT_EQ(bytes[30], 0);
  EXPECT_EQ(bytes[429], 1);
}

TEST_F(ContextTest, FillsThatCannotBe) {
  const CUdeviceptr p = allocate(100);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(p, 0, 101));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD16(p + 1, 0, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(p + 2, 0, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(p, 0, SIZE_MAX / 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(0, 0, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8(p, 10, 0, 20, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8(p, 50, 0, 20, 3));
  OK(cuMemsetD8(p, 0, 0));
}

}  // namespace
}  // namespace fargpu::sim_test
