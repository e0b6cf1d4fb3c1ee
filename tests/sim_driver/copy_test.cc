#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>
#include <thread>

#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

std::vector<unsigned char> pattern(size_t bytes) {
  std::vector<unsigned char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(i * 7 + i / 256);
  return data;
}

TEST_F(ContextTest, CopiesInAllDirections) {
  const auto in = pattern(5000);
  std::vector<unsigned char> out(in.size());
  const CUdeviceptr a = allocate(5000), b = allocate(5000);
  OK(cuMemcpyHtoD(a, in.data(), in.size()));
  OK(cuMemcpyDtoD(b + 3, a + 1, 4000));
  OK(cuMemcpyDtoH(out.data(), b + 3, 4000));
  EXPECT_EQ(std::memcmp(out.data(), in.data() + 1, 4000), 0);
  OK(cuMemcpy(b, reinterpret_cast<CUdeviceptr>(in.data()), 5000));
  OK(cuMemcpy(reinterpret_cast<CUdeviceptr>(out.data()), b, 5000));
  EXPECT_EQ(in, out);
  OK(cuMemcpy(reinterpret_cast<CUdeviceptr>(out.data()),
              reinterpret_cast<CUdeviceptr>(in.data() + 1), 10));
  EXPECT_EQ(out[0], in[1]);
}

TEST_F(ContextTest, CopiesOutsideAnAllocationAreRefused) {
  auto host = pattern(4096);
  const CUdeviceptr a = allocate(1000);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(a, host.data(), 1001));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(a + 990, host.data(), 11));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host.data(), a - 1, 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(0, host.data(), 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(a, nullptr, 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host.data(), a, SIZE_MAX));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemcpy(a + 500, reinterpret_cast<CUdeviceptr>(host.data()), 501));
  const auto no_stream = reinterpret_cast<CUstream>(uintptr_t{0x7777000});
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuMemcpyHtoDAsync(a, host.data(), 4, no_stream));
  OK(cuMemcpyHtoD(0, host.data(), 0));
  OK(cuMemcpyHtoD(a + 990, host.data(), 10));
}

// The bytes of a pageable source are taken before the call returns.
TEST_F(ContextTest, PageableSourceMayBeOverwrittenAtOnce) {
  PinnedWords gate(1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamWaitValue32(stream, gate.device(), 1, CU_STREAM_WAIT_VALUE_EQ));
  const CUdeviceptr a = allocate(4000);
  auto source = pattern(4000);
  const auto before = source;
  OK(cuMemcpyHtoDAsync(a, source.data(), source.size(), stream));
  std::fill(source.begin(), source.end(), static_cast<unsigned char>(0xee));
  gate.store(0, 1);
  std::vector<unsigned char> out(4000);
  OK(cuMemcpyDtoHAsync(out.data(), a, out.size(), stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(out, before);
}

// Whatever it is named as, a copy between host memory is over when the call returns.
TEST_F(ContextTest, ACopyBetweenHostMemoryWaitsForItsStream) {
  PinnedWords gate(1), source(1), target(1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto from = reinterpret_cast<CUdeviceptr>(source.data());
  const auto to = reinterpret_cast<CUdeviceptr>(target.data());
  const std::function<CUresult()> forms[] = {
      [&] { return cuMemcpyDtoDAsync(to, from, sizeof(uint32_t), stream); },
      [&] { return cuMemcpyHtoDAsync(to, source.data(), sizeof(uint32_t), stream); },
      [&] { return cuMemcpyDtoHAsync(target.data(), from, sizeof(uint32_t), stream); },
      [&] { return cuMemcpyAsync(to, from, sizeof(uint32_t), stream); }};
  for (uint32_t form = 1; form <= std::size(forms); ++form) {
    gate.store(0, 0);
    source.store(0, 0);
    OK(cuStreamWaitValue32(stream, gate.device(), 1, CU_STREAM_WAIT_VALUE_EQ));
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      source.store(0, form);
      gate.store(0, 1);
    });
    OK(forms[form - 1]());
    EXPECT_EQ(target.load(0), form);
    opener.join();
  }
}

// A pinned source is read when the stream gets there.
TEST_F(ContextTest, PinnedSourceIsReadInStreamOrder) {
  PinnedWords gate(1), source(1), target(1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamWaitValue32(stream, gate.device(), 1, CU_STREAM_WAIT_VALUE_EQ));
  const CUdeviceptr a = allocate(4);
  source.store(0, 1);
  OK(cuMemcpyHtoDAsync(a, source.data(), 4, stream));
  OK(cuMemcpyDtoHAsync(target.data(), a, 4, stream));
  EXPECT_EQ(target.load(0), 0u);
  source.store(0, 2);
  gate.store(0, 1);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(target.load(0), 2u);
}

TEST_F(ContextTest, Batches) {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto in = pattern(64);
  std::vector<unsigned char> out(64);
  const CUdeviceptr a = allocate(64);
  CUdeviceptr to[] = {a, a + 32, reinterpret_cast<CUdeviceptr>(out.data())};
  CUdeviceptr from[] = {reinterpret_cast<CUdeviceptr>(in.data()), a, a};
  size_t sizes[] = {64, 32, 64}, starts[] = {0}, failed = 99;
  CUmemcpyAttributes attributes[1] = {};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  OK(cuMemcpyBatchAsync(to, from, sizes, 3, attributes, starts, 1, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(std::memcmp(out.data() + 32, in.data(), 32), 0);
  using Old = CUresult (*)(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                           size_t*, size_t, size_t*, CUstream);
  void* old = nullptr;
  OK(cuGetProcAddress("cuMemcpyBatchAsync", &old, 12080, 0, nullptr));
  sizes[1] = 33;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            reinterpret_cast<Old>(old)(to, from, sizes, 3, attributes, starts, 1, &failed, stream));
  EXPECT_EQ(failed, 1u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemcpyBatchAsync(to, from, sizes, 3, attributes, starts, 1, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemcpyBatchAsync(to, from, sizes, 3, attributes, starts, 4, stream));
}

TEST_F(ContextTest, TwoDimensionsWithPitches) {
  const auto in = pattern(64 * 20);
  const CUdeviceptr a = allocate(128 * 20);
  OK(cuMemsetD8(a, 0, 128 * 20));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in.data();
  copy.srcPitch = 64;
  copy.srcXInBytes = 4;
  copy.srcY = 2;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = a;
  copy.dstPitch = 128;
  copy.dstXInBytes = 10;
  copy.dstY = 1;
  copy.WidthInBytes = 50;
  copy.Height = 18;
  OK(cuMemcpy2D(&copy));
  std::vector<unsigned char> out(128 * 20);
  OK(cuMemcpyDtoH(out.data(), a, out.size()));
  for (size_t y = 0; y < 20; ++y) {
    for (size_t x = 0; x < 128; ++x) {
      const bool inside = y >= 1 && y < 19 && x >= 10 && x < 60;
      const unsigned char expected = inside ? in[(y - 1 + 2) * 64 + x - 10 + 4] : 0;
      ASSERT_EQ(out[y * 128 + x], expected) << x << ' ' << y;
    }
  }
  copy.Height = 20;  // one row too many behind dstY
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&copy));
  copy.Height = 18;
  copy.dstPitch = 49;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&copy));
  copy.dstPitch = SIZE_MAX / 2;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&copy));
  copy.dstPitch = 128;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&copy));
  copy.dstMemoryType = static_cast<CUmemorytype>(17);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&copy));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(nullptr));
}

TEST_F(ContextTest, ThreeDimensions) {
  constexpr size_t kW = 16, kH = 8, kD = 4;
  const auto in = pattern(kW * kH * kD);
  const CUdeviceptr a = allocate(32 * 10 * kD);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in.data();
  copy.srcPitch = kW;
  copy.srcHeight = kH;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = a;
  copy.dstPitch = 32;
  copy.dstHeight = 10;
  copy.WidthInBytes = kW;
  copy.Height = kH;
  copy.Depth = kD;
  OK(cuMemcpy3D(&copy));
  std::vector<unsigned char> out(in.size());
  std::swap(copy.srcMemoryType, copy.dstMemoryType);
  copy.srcDevice = a;
  copy.srcPitch = 32;
  copy.srcHeight = 10;
  copy.dstHost = out.data();
  copy.dstPitch = kW;
  copy.dstHeight = kH;
  OK(cuMemcpy3DAsync(&copy, nullptr));
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(in, out);
  copy.srcHeight = 7;
  copy.Depth = 1;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&copy));
}

}  // namespace
}  // namespace fargpu::sim_test
