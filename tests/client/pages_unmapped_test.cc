// Regions of which the application unmaps or protects a part, without a word.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "client/hostmem/pages.h"
#include "client/memory/user_faults.h"
#include "tests/client/apart.h"
#include "tests/client/pages_worker.h"

namespace fargpu::client {
namespace {

constexpr size_t kPage = 4096, kPages = 8, kBytes = kPages * kPage;
constexpr std::byte operator""_b(unsigned long long value) { return static_cast<std::byte>(value); }

class PagesUnmappedTest : public testing::Test {
 protected:
  PagesUnmappedTest() : host_(test::map_apart(kBytes)), worker_(address(), kBytes) {
    EXPECT_NE(host_, nullptr);
    EXPECT_EQ(pages_.add(address(), kBytes, 1,
                         [this](CUdeviceptr* pointer) {
                           *pointer = address();
                           return CUDA_SUCCESS;
                         }),
              CUDA_SUCCESS);
    std::fill_n(host_, kBytes, 1_b);
    work();
  }
  ~PagesUnmappedTest() override { ::munmap(host_, kBytes); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(host_); }
  void unmap(size_t first, size_t count) { ::munmap(host_ + first * kPage, count * kPage); }
  void map_again(size_t page, int protection) {
    ASSERT_NE(::mmap(host_ + page * kPage, kPage, protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
              MAP_FAILED);
  }
  void work() {
    pages_.begin_work();
    EXPECT_EQ(pages_.push(), CUDA_SUCCESS);
    pages_.end_work();
  }
  void pull() { EXPECT_EQ(pages_.pull(std::nullopt), CUDA_SUCCESS); }

  std::byte* const host_;
  PagesWorker worker_;
  UserFaults faults_;
  Observers observers_;
  Pages pages_{worker_.link, observers_, 1 << 20, faults_};
};

TEST_F(PagesUnmappedTest, WhatIsLeftStaysEqual) {
  unmap(2, 3);
  host_[kPage] = 7_b;
  host_[6 * kPage] = 8_b;
  work();
  EXPECT_EQ(worker_.memory()[kPage], 7_b);
  EXPECT_EQ(worker_.memory()[6 * kPage], 8_b);
  EXPECT_EQ(worker_.memory()[3 * kPage], 1_b) << "the mirror keeps what it has";
  std::fill(worker_.memory().begin(), worker_.memory().end(), 9_b);
  pull();
  EXPECT_EQ(host_[0], 9_b);
  EXPECT_EQ(host_[2 * kPage - 1], 9_b);
  EXPECT_EQ(host_[5 * kPage], 9_b);
  EXPECT_EQ(host_[kBytes - 1], 9_b);
}

TEST_F(PagesUnmappedTest, WhatIsMappedThereLaterIsOtherMemory) {
  unmap(2, 1);
  unmap(4, 1);
  work();
  map_again(2, PROT_READ | PROT_WRITE);
  map_again(4, PROT_READ);
  host_[2 * kPage] = 5_b;
  work();
  EXPECT_EQ(worker_.memory()[2 * kPage], 1_b);
  worker_.memory()[2 * kPage + 1] = 6_b;
  worker_.memory()[4 * kPage] = 6_b;
  pull();
  EXPECT_EQ(host_[2 * kPage + 1], 0_b);
  EXPECT_EQ(host_[4 * kPage], 0_b);
}

TEST_F(PagesUnmappedTest, ADeviceMayWriteWhatIsGone) {
  unmap(0, 1);
  unmap(7, 1);
  std::fill(worker_.memory().begin(), worker_.memory().end(), 3_b);
  pull();  // without a push before it
  EXPECT_EQ(host_[kPage], 3_b);
  EXPECT_EQ(host_[7 * kPage - 1], 3_b);
  work();
  pull();
  unmap(1, 6);
  std::fill(worker_.memory().begin(), worker_.memory().end(), 4_b);
  pull();
  work();
  EXPECT_EQ(worker_.memory()[0], 4_b);
}

TEST_F(PagesUnmappedTest, ProtectionHoldsNothingUp) {
  host_[kPage] = 7_b;
  ::mprotect(host_ + kPage, kPage, PROT_NONE);
  ::mprotect(host_ + 2 * kPage, kPage, PROT_READ);
  work();
  EXPECT_EQ(worker_.memory()[kPage], 7_b);
  worker_.memory()[kPage + 1] = 8_b;
  worker_.memory()[2 * kPage] = 9_b;
  pull();
  EXPECT_EQ(host_[2 * kPage], 9_b);
  ::mprotect(host_ + kPage, kPage, PROT_READ | PROT_WRITE);
  EXPECT_EQ(host_[kPage], 7_b);
  EXPECT_EQ(host_[kPage + 1], 8_b);
  host_[kPage] = 10_b;
  work();
  EXPECT_EQ(worker_.memory()[kPage], 10_b);
}

TEST_F(PagesUnmappedTest, ScatteredWordsOfAPageAllArrive) {
  auto& at_worker = worker_.memory();
  for (size_t at = 0; at < kBytes; at += 24) at_worker[at] = 5_b;
  host_[1] = 6_b;  // not the device's
  pull();
  for (size_t at = 0; at < kBytes; ++at)
    ASSERT_EQ(host_[at], at == 1 ? 6_b : (at % 24 == 0 ? 5_b : 1_b)) << at;
}

TEST_F(PagesUnmappedTest, AWatchedWordMayGo) {
  pages_.watch(address() + kPage + 8, 4);
  pages_.watch(address() + 3 * kPage, 8);
  unmap(1, 1);
  host_[3 * kPage] = 2_b;
  EXPECT_TRUE(pages_.any_word_changed());
  work();
  EXPECT_EQ(worker_.memory()[3 * kPage], 2_b);
  EXPECT_FALSE(pages_.any_word_changed());
}

}  // namespace
}  // namespace fargpu::client
