// Warp matrices of C++ (mma.h) as nvcc compiles them, against plain matrix products.
#include <bit>
#include <fstream>
#include <iterator>

#include "sim/image/half_math.h"
#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

template <typename Format>
struct Half {
  Half() = default;
  explicit Half(int value) : bits(double_to_half<Format>(value, HalfRounding::kNearest)) {}
  bool operator==(const Half&) const = default;
  uint16_t bits = 0;
};
using F = Half<F16>;
using B = Half<Bf16>;

template <typename T>
std::ostream& operator<<(std::ostream& out, const Half<T>& value) {
  return out << value.bits;
}

class MatricesTest : public EngineTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    std::ifstream file(std::string(FARGPU_PTX_COMPILED) + "/matrices_" + GetParam() + ".ptx");
    if (!file) GTEST_SKIP() << "no nvcc: the kernels were not made";
    load(std::string(std::istreambuf_iterator<char>(file), {}));
  }

  static int small(size_t i, bool is_signed) {
    const auto value = static_cast<int>(i * 2654435761u >> 9 & 0xffff);
    return is_signed ? value % 9 - 4 : value % 100;
  }

  // Both products of a kernel of kernels/matrices.cu.
  template <typename Memory, typename R>
  void check(const std::string& kernel, size_t m, size_t n, size_t k, bool is_signed = true) {
    std::vector<Memory> a, b;
    std::vector<R> c;
    for (size_t i = 0; i < m * k; ++i) a.push_back(static_cast<Memory>(small(i, is_signed)));
    for (size_t i = 0; i < k * n; ++i) b.push_back(static_cast<Memory>(small(i + 999, is_signed)));
    for (size_t i = 0; i < m * n; ++i) c.push_back(static_cast<R>(small(i + 55, true)));
    const uint64_t out = buffer(std::vector<R>(2 * m * n));
    run(kernel, 1, 32, Parameters().add(buffer(a)).add(buffer(b)).add(buffer(c)).add(out));
    const auto r = read<R>(out, 2 * m * n);
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < n; ++j) {
        int row_column = small(i * n + j + 55, true), column_row = small(j * m + i + 55, true);
        for (size_t l = 0; l < k; ++l) {
          row_column += 2 * small(i * k + l, is_signed) * small(j * k + l + 999, is_signed);
          column_row += 2 * small(l * m + i, is_signed) * small(l * n + j + 999, is_signed);
        }
        ASSERT_EQ(r[i * n + j], static_cast<R>(row_column)) << kernel << " " << i << " " << j;
        ASSERT_EQ(r[m * n + j * m + i], static_cast<R>(column_row))
            << kernel << " by columns " << i << " " << j;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, MatricesTest, ::testing::Values("80", "90"));

TEST_P(MatricesTest, AllTypesAndShapes) {
  check<F, float>("half_16_16_16", 16, 16, 16);
  check<F, F>("half_32_8_16", 32, 8, 16);
  check<F, float>("half_8_32_16", 8, 32, 16);
  check<B, float>("bfloat_16_16_16", 16, 16, 16);
  check<B, float>("bfloat_32_8_16", 32, 8, 16);
  check<B, float>("bfloat_8_32_16", 8, 32, 16);
  check<float, float>("tf32_16_16_8", 16, 16, 8);
  check<double, double>("double_8_8_4", 8, 8, 4);
  check<int8_t, int32_t>("signed_16_16_16", 16, 16, 16);
  check<uint8_t, int32_t>("unsigned_32_8_16", 32, 8, 16, false);
  check<int8_t, int32_t>("signed_8_32_16", 8, 32, 16);
}

TEST_P(MatricesTest, ElementsBelowAByte) {
  std::vector<uint32_t> a(32), b(32);
  for (uint32_t i = 0; i < 32; ++i) a[i] = i * 2654435761u, b[i] = i * 2246822519u + 12345;
  const uint64_t out = buffer(std::vector<int32_t>(128));
  run("narrow", 1, 32, Parameters().add(buffer(a)).add(buffer(b)).add(out));
  const auto r = read<int32_t>(out, 128);
  const auto nibble = [](const std::vector<uint32_t>& words, size_t i) {
    return static_cast<int32_t>(words[i / 8] << (28 - i % 8 * 4)) >> 28;
  };
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      int32_t product = 0, ones = 1;
      for (size_t k = 0; k < 32; ++k) product += nibble(a, i * 32 + k) * nibble(b, j * 32 + k);
      for (size_t k = 0; k < 4; ++k) ones += std::popcount(a[i * 4 + k] & b[j * 4 + k]);
      ASSERT_EQ(r[i * 8 + j], product) << i << " " << j;
      ASSERT_EQ(r[64 + i * 8 + j], ones) << i << " " << j;
    }
  }
}

TEST_P(MatricesTest, ThroughSharedMemory) {
  std::vector<F> a, b;
  for (size_t i = 0; i < 32 * 32; ++i)
    a.emplace_back(small(i, true)), b.emplace_back(small(i + 7, true));
  const uint64_t out = buffer(std::vector<float>(32 * 32));
  run("through_shared", 1, 128, Parameters().add(buffer(a)).add(buffer(b)).add(out));
  const auto r = read<float>(out, 32 * 32);
  for (size_t i = 0; i < 32; ++i) {
    for (size_t j = 0; j < 32; ++j) {
      int sum = 0;
      for (size_t k = 0; k < 32; ++k) sum += small(i * 32 + k, true) * small(k * 32 + j + 7, true);
      ASSERT_EQ(r[i * 32 + j], static_cast<float>(sum)) << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace fargpu::sim
