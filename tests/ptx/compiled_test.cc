// Kernels that nvcc has compiled (kernels/*.cu), against the host.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>

#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

class CompiledTest : public EngineTest {
 protected:
  void load_file(const std::string& name) {
    std::ifstream file(std::string(FARGPU_PTX_COMPILED) + "/" + name + ".ptx");
    if (!file) GTEST_SKIP() << "no nvcc: " << name << ".ptx was not made";
    load(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  void run2(const std::string& kernel, std::array<uint32_t, 3> grid, std::array<uint32_t, 3> block,
            const Parameters& parameters, bool cooperative = false) {
    GridConfig config;
    config.grid = grid;
    config.block = block;
    config.cooperative = cooperative;
    const auto fault = launch(kernel, config, parameters);
    EXPECT_FALSE(fault.has_value()) << fault->text;
  }
};

class ParallelTest : public CompiledTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { load_file(std::string("parallel_") + GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Targets, ParallelTest, ::testing::Values("75", "90"));

TEST_P(ParallelTest, Matmul) {
  const uint32_t n = 64;
  std::vector<float> a(n * n), b(n * n);
  for (uint32_t i = 0; i < n * n; ++i)
    a[i] = static_cast<float>(i * 7 % 13) * 0.25f, b[i] = static_cast<float>(i * 5 % 11) * 0.5f;
  const uint64_t da = buffer(a), db = buffer(b), dc = buffer(std::vector<float>(n * n));
  run2("matmul", {n / 16, n / 16, 1}, {16, 16, 1}, Parameters().add(da).add(db).add(dc).add(n));
  const auto c = read<float>(dc, n * n);
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t j = 0; j < n; ++j) {
      float e = 0;
      for (uint32_t k = 0; k < n; ++k) e = std::fma(a[i * n + k], b[k * n + j], e);
      ASSERT_EQ(c[i * n + j], e);
    }
  }
}

TEST_P(ParallelTest, Reduce) {
  const uint32_t n = 10'000;
  std::vector<float> a(n);
  for (uint32_t i = 0; i < n; ++i) a[i] = static_cast<float>(i % 97);
  const uint64_t in = buffer(a), out = buffer(std::vector<float>(1));
  run("reduce", 8, 256, Parameters().add(in).add(out).add(n), 32);
  EXPECT_EQ(read<float>(out, 1)[0], std::accumulate(a.begin(), a.end(), 0.0f));
}

TEST_P(ParallelTest, Histogram) {
  std::vector<uint8_t> a(20'000);
  std::vector<uint32_t> expected(256);
  for (size_t i = 0; i < a.size(); ++i) ++expected[a[i] = static_cast<uint8_t>(i * i >> 3)];
  const uint64_t in = buffer(a), bins = buffer(std::vector<uint32_t>(256));
  run("histogram", 6, 192, Parameters().add(in).add(bins).add(static_cast<uint32_t>(a.size())));
  EXPECT_EQ(read<uint32_t>(bins, 256), expected);
}

TEST_P(ParallelTest, ScanAndSort) {
  std::vector<int32_t> v(1024);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int32_t>(i * 37 % 101) - 50;
  const uint64_t data = buffer(v);
  run("scan", 1, 1024, Parameters().add(data));
  std::vector<int32_t> expected(v.size());
  std::partial_sum(v.begin(), v.end(), expected.begin());
  EXPECT_EQ(read<int32_t>(data, v.size()), expected);
  std::vector<uint32_t> keys(512);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<uint32_t>(i * 2654435761u);
  const uint64_t sorted = buffer(keys);
  run("sort", 1, 512, Parameters().add(sorted), 2048);
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(read<uint32_t>(sorted, keys.size()), keys);
}

TEST_P(ParallelTest, GridSync) {
  const int32_t n = 12 * 96;
  const uint64_t a = buffer(std::vector<int32_t>(n));
  run2("grid_wide", {12, 1, 1}, {96, 1, 1}, Parameters().add(a).add(n), true);
  const auto r = read<int32_t>(a, n);
  for (int32_t i = 0; i < n; ++i) ASSERT_EQ(r[i], (i + 3) % n + 3);
}

TEST_P(ParallelTest, CooperativeGroups) {
  const uint64_t out = buffer(std::vector<int32_t>(64));
  run("groups", 1, 64, Parameters().add(out));
  const auto r = read<int32_t>(out, 64);
  for (int32_t i = 0; i < 64; ++i) {
    int32_t total = 0, before = 0, members = 0, rank = 0;
    for (int32_t k = i / 8 * 8; k < i / 8 * 8 + 8; ++k) total += k, before += k < i ? k : 0;
    if (i % 3 == 0) {
      for (int32_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k)
        members += k % 3 == 0, rank += k % 3 == 0 && k < i;
    }
    ASSERT_EQ(r[i], total * 1000000 + before * 10000 + members * 100 + rank * 10 + 4) << i;
  }
}

TEST_P(ParallelTest, LocksAndChains) {
  const uint64_t counter = buffer(std::vector<int32_t>(1)),
                 values = buffer(std::vector<uint32_t>(40));
  run("critical", 6, 64, Parameters().add(counter));
  EXPECT_EQ(read<int32_t>(counter, 1)[0], 6 * 64);
  run("chain", 40, 32, Parameters().add(values));
  const auto r = read<uint32_t>(values, 40);
  for (uint32_t i = 0; i < 40; ++i) EXPECT_EQ(r[i], (i + 1) * (i + 2) / 2);
}

class LanguageTest : public CompiledTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { load_file(std::string("language_") + GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Targets, LanguageTest, ::testing::Values("75", "90", "debug"));

struct Point {
  double x, y;
  int32_t tag, fill;
};

int32_t ackermann(int32_t m, int32_t n) {
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

TEST_P(LanguageTest, Features) {
  const uint64_t out = buffer(std::vector<float>(64));
  run("language", 1, 64, Parameters().add(out).add(Point{1.5, 4.25, 7, 0}).add(int32_t{64}));
  const auto r = read<float>(out, 64);
  for (int32_t i = 0; i < 64; ++i) {
    float e = 2.75f + 8 + static_cast<float>(i % 8 + 1) + static_cast<float>((i % 4 + 1) * 10);
    switch (i % 7) {
      case 0:
        e += 100;
        break;
      case 1:
        e *= 2;
        break;
      case 2:
        e -= 3;
        break;
      case 3:
        e += 4.5f;
        break;
      case 4:
        e += 0.5f;
        break;
      default:
        e = -e;
        break;
    }
    const auto f = static_cast<float>(i);
    e += i % 2 == 0 ? f * f : 3 * f * f;
    e += static_cast<float>(ackermann(2, i % 4));
    ASSERT_EQ(r[i], e) << i;
  }
  const auto fault = launch("language", 1, 64, Parameters().add(out).add(Point{}).add(int32_t{63}));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kAssert);
  EXPECT_NE(fault->messages.find("Assertion `i < n` failed"), std::string::npos) << fault->messages;
}

TEST_P(LanguageTest, Printf) {
  run("say", 1, 32, Parameters().add(int32_t{3}));
  EXPECT_EQ(
      output,
      "thread 0 of 32:  0.00 text a 123456789abcdef\nthread 1 of 32:  0.50 text b 123456789abcdef\n"
      "thread 2 of 32:  1.00 text c 123456789abcdef\n");
}

TEST_P(LanguageTest, DivisionOf128Bits) {
  using W = unsigned __int128;
  const uint32_t n = 200;
  std::mt19937_64 random(11);
  std::vector<uint64_t> a(2 * n), b(2 * n);
  for (uint32_t i = 0; i < n; ++i) {
    W wide = (W{random()} << 64 | random()) >> (i % 3 * 40), by = W{random()} << 64 | random();
    by = by >> (i * 7 % 127) | 1;
    a[2 * i] = static_cast<uint64_t>(wide), a[2 * i + 1] = static_cast<uint64_t>(wide >> 64);
    b[2 * i] = static_cast<uint64_t>(by), b[2 * i + 1] = static_cast<uint64_t>(by >> 64);
  }
  const uint64_t da = buffer(a), db = buffer(b), out = buffer(std::vector<uint64_t>(4 * n));
  run("divide_128", 4, 64, Parameters().add(da).add(db).add(out).add(n));
  const auto r = read<uint64_t>(out, 4 * n);
  const auto wide = [](const auto& words, size_t i) { return W{words[i + 1]} << 64 | words[i]; };
  for (uint32_t i = 0; i < n; ++i) {
    const W over = wide(a, 2 * i), by = wide(b, 2 * i);
    ASSERT_TRUE(wide(r, 4 * i) == over / by) << i;
    ASSERT_TRUE(wide(r, 4 * i + 2) == over % by) << i;
  }
}

TEST_P(LanguageTest, BigNumbers) {
  const uint32_t n = 500;
  std::mt19937_64 random(7);
  std::vector<uint64_t> a(n), b(n);
  for (uint32_t i = 0; i < n; ++i) a[i] = random() >> (i % 64), b[i] = random() >> (i * 7 % 64);
  b[3] = 0;
  const uint64_t da = buffer(a), db = buffer(b), out = buffer(std::vector<uint64_t>(4 * n));
  run("big_numbers", 4, 128, Parameters().add(da).add(db).add(out).add(n));
  const auto r = read<uint64_t>(out, 4 * n);
  for (uint32_t i = 0; i < n; ++i) {
    const unsigned __int128 p = static_cast<unsigned __int128>(a[i]) * b[i];
    const auto high = static_cast<uint64_t>(p >> 64);
    uint64_t reversed = 0;
    for (int k = 0; k < 64; ++k) reversed |= (b[i] >> k & 1) << (63 - k);
    ASSERT_EQ(r[4 * i], high ^ static_cast<uint64_t>(p));
    ASSERT_EQ(r[4 * i + 1], b[i] != 0 ? a[i] / b[i] + a[i] % b[i] : 0);
    ASSERT_EQ(r[4 * i + 2],
              high +
                  static_cast<uint64_t>(std::popcount(a[i]) + std::countl_zero(b[i]) +
                                        (a[i] == 0 ? 0 : std::countr_zero(a[i]) + 1)) +
                  reversed);
    ASSERT_EQ(r[4 * i + 3],
              static_cast<uint64_t>(static_cast<int64_t>(a[i]) / (static_cast<int64_t>(b[i]) | 1)));
  }
}

TEST_P(LanguageTest, Halves) {
  std::vector<float> v;
  // From -3 to 3.75: squares of more than 16 would need more than the 8 bits of bf16.
  for (int i = 0; i < 32; ++i) v.push_back(static_cast<float>(i % 28) * 0.25f - 3);
  const uint64_t in = buffer(v), out = buffer(std::vector<float>(96));
  run("halves", 1, 32, Parameters().add(in).add(out).add(int32_t{32}));
  const auto r = read<float>(out, 96);
  for (int i = 0; i < 32; ++i) {  // all values are exact in both formats
    const float x = v[static_cast<size_t>(i)];
    EXPECT_EQ(r[static_cast<size_t>(3 * i)], x * x + 1 + 1.25f);
    EXPECT_EQ(r[static_cast<size_t>(3 * i + 1)], x * x + (x > 0.5f ? 1.0f : 0.0f));
    EXPECT_EQ(r[static_cast<size_t>(3 * i + 2)], std::nearbyint(x + 0.5f));
  }
}

TEST_P(LanguageTest, Mathematics) {
  const uint32_t n = 300;
  std::vector<double> v;
  for (uint32_t i = 0; i < n; ++i) v.push_back(static_cast<double>(i) * 0.11 - 15.3);
  const uint64_t in = buffer(v), out = buffer(std::vector<double>(16 * n));
  run("mathematics", 3, 128, Parameters().add(in).add(out).add(n));
  const auto r = read<double>(out, 16 * n);
  for (uint32_t i = 0; i < n; ++i) {
    const double x = v[i];
    const auto f = static_cast<float>(x);
    const double e[16] = {std::sin(x),
                          std::cos(x),
                          std::exp(x * 0.1),
                          std::log(x + 20),
                          std::pow(x + 20, 1.5),
                          std::sqrt(x + 20) / (x + 21),
                          std::atan2(x, 2.0),
                          std::erf(x * 0.1),
                          std::sin(static_cast<double>(f)),
                          std::exp(static_cast<double>(f * 0.1f)),
                          std::log(static_cast<double>(f + 20)),
                          std::pow(static_cast<double>(f + 20), 1.5),
                          std::fmod(f, 3.0f),
                          std::cbrt(x),
                          std::tgamma(x * 0.1 + 3),
                          std::rint(x) + std::floor(x) + std::trunc(x) +
                              static_cast<double>(static_cast<int64_t>(x)) +
                              static_cast<double>(static_cast<uint32_t>(x + 20))};
    for (uint32_t k = 0; k < 16; ++k) {
      const double tolerance = k >= 8 && k <= 12 ? 1e-6 : 1e-13;
      ASSERT_NEAR(r[16 * i + k], e[k], std::fabs(e[k]) * tolerance + tolerance) << k << " of " << x;
    }
  }
}

}  // namespace
}  // namespace fargpu::sim
