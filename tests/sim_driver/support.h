// What the tests of the simulated driver share: two GPUs of 256 MiB, a context per test, device
// code as PTX text.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fargpu::sim_test {

// Result names in messages of failed expectations.
std::string name_of(CUresult result);

#define EXPECT_CU(expected, call) \
  EXPECT_EQ(::fargpu::sim_test::name_of(expected), ::fargpu::sim_test::name_of(call)) << #call
#define ASSERT_CU(expected, call) \
  ASSERT_EQ(::fargpu::sim_test::name_of(expected), ::fargpu::sim_test::name_of(call)) << #call
#define OK(call) ASSERT_CU(CUDA_SUCCESS, call)

// Kernels: fill(p u64, value u32, n u32); add(a, b, c u64, n u32); write_at(address u64, value
// u32); read_at(address u64, out u64); trap(); misaligned(p u64); bump() adds 1 to the variable
// `counter` (starts at 40); scale(p u64) multiplies *p by the constant `factor` (3); spin(flag u64)
// waits until *flag is not 0; shared_reverse(p u64) reverses 128 words through static and dynamic
// shared memory.
extern const char* const kKernels;

constexpr size_t kMemory = size_t{256} << 20;

// A created context of device 0, destroyed after the test, so that a failed context harms no other
// test.
class ContextTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A function of kKernels in the current context.
  CUfunction function(const char* name);
  CUdeviceptr allocate(size_t bytes);
  // One block of threads; parameters by address.
  CUresult launch(CUfunction function, unsigned threads, std::vector<void*> parameters,
                  CUstream stream = nullptr, unsigned blocks = 1, unsigned shared = 0);
  CUresult fill(CUdeviceptr p, uint32_t value, uint32_t n, CUstream stream = nullptr);
  uint32_t read_word(CUdeviceptr p);

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;  // kKernels, loaded by the first function()
};

// Page-locked memory as words, zeroed; streams wait for and kernels poll it.
class PinnedWords {
 public:
  explicit PinnedWords(size_t count);
  ~PinnedWords();
  PinnedWords(const PinnedWords&) = delete;
  PinnedWords& operator=(const PinnedWords&) = delete;
  CUdeviceptr device(size_t index = 0) const {
    return reinterpret_cast<CUdeviceptr>(words_ + index);
  }
  void store(size_t index, uint32_t value);
  uint32_t load(size_t index) const;
  uint32_t* data() const { return words_; }

 private:
  uint32_t* words_ = nullptr;
};

}  // namespace fargpu::sim_test
