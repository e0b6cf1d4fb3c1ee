#include "client/hostmem/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <thread>
#include <vector>

#include "client/memory/user_faults.h"
#include "tests/client/pages_worker.h"

namespace fargpu::client {
namespace {

class PagesTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 10000;
  PagesTest() : host_(kBytes), worker_(address(), kBytes) {
    EXPECT_EQ(pages_.add(address(), kBytes, 1,
                         [this](CUdeviceptr* pointer) {
                           *pointer = address();
                           return CUDA_SUCCESS;
                         }),
              CUDA_SUCCESS);
  }
  uint64_t address() { return reinterpret_cast<uint64_t>(host_.data()); }
  CUresult work() {
    pages_.begin_work();
    const CUresult result = pages_.push();
    pages_.end_work();
    return result;
  }
  std::vector<std::byte> host_;
  PagesWorker worker_;
  UserFaults faults_;
  Observers observers_;
  Pages pages_{worker_.link, observers_, 256, faults_};
};

constexpr std::byte operator""_b(unsigned long long value) { return static_cast<std::byte>(value); }

TEST_F(PagesTest, ADevicesWordSurvivesAPushOfItsPage) {
  work();
  worker_.memory()[0] = 7_b;  // the device; nobody waits
  host_[2048] = 42_b;
  ASSERT_EQ(work(), CUDA_SUCCESS);
  EXPECT_EQ(worker_.pushed(), 1u);
  EXPECT_EQ(worker_.memory()[0], 7_b);
  EXPECT_EQ(worker_.memory()[2048], 42_b);
  ASSERT_EQ(pages_.pull(std::nullopt), CUDA_SUCCESS);
  EXPECT_EQ(host_, worker_.memory());
}

TEST_F(PagesTest, ForTheFirstTimePagesAreSentAsAWhole) {
  for (size_t i = 0; i < kBytes; i += 4) host_[i] = 1_b;
  ASSERT_EQ(work(), CUDA_SUCCESS);
  EXPECT_EQ(worker_.memory(), host_);
  EXPECT_LE(worker_.pushed_at().size(), 2 * kBytes / 256) << "not each word by itself";
  EXPECT_LE(worker_.pushed(), kBytes);
  const size_t before = worker_.pushed();
  host_[4] = host_[8] = 2_b;
  worker_.memory()[5] = 7_b;  // the device
  ASSERT_EQ(work(), CUDA_SUCCESS);
  EXPECT_EQ(worker_.pushed(), before + 5) << "one run with a gap";
  EXPECT_EQ(worker_.memory()[5], 7_b);
}

TEST_F(PagesTest, WhatIsReadOnlyIsSentAndNeverWritten) {
  ASSERT_TRUE(pages_.remove(address()));
  ASSERT_EQ(pages_.add(
                address(), kBytes, 1, [](CUdeviceptr*) { return CUDA_SUCCESS; },
                [] { return false; }, [] { return nullptr; }, true),
            CUDA_SUCCESS);
  host_[5] = 42_b;
  ASSERT_EQ(work(), CUDA_SUCCESS);
  EXPECT_EQ(worker_.memory()[5], 42_b);
  worker_.memory()[6] = 7_b;
  ASSERT_EQ(pages_.pull(std::nullopt), CUDA_SUCCESS);
  EXPECT_EQ(host_[6], 0_b);
  host_[7] = 1_b;
  ASSERT_EQ(work(), CUDA_SUCCESS);
  EXPECT_EQ(worker_.memory()[6], 7_b);
  EXPECT_EQ(worker_.memory()[7], 1_b);
}

TEST_F(PagesTest, NothingIsFetchedWhileNoWorkCanHaveWritten) {
  ASSERT_EQ(pages_.pull(std::nullopt), CUDA_SUCCESS);
  EXPECT_EQ(worker_.fetches, 0u);
  work();
  const auto mark = pages_.mark();
  ASSERT_TRUE(mark);
  pages_.pull(std::nullopt);  // other work may still run
  EXPECT_EQ(worker_.fetches, 1u);
  pages_.pull(mark);
  EXPECT_EQ(worker_.fetches, 2u);
  pages_.pull(std::nullopt);
  EXPECT_EQ(worker_.fetches, 2u);
}

TEST_F(PagesTest, WorkThatIsBeingSentIsNotDone) {
  const auto before = pages_.mark();
  pages_.begin_work();
  EXPECT_FALSE(pages_.mark());
  pages_.push();
  pages_.end_work();
  worker_.memory()[1] = 1_b;
  pages_.pull(before);  // a wait for what came before that work
  worker_.memory()[2] = 2_b;
  pages_.pull(std::nullopt);
  EXPECT_EQ(host_[2], 2_b);
}

TEST_F(PagesTest, APushThatOvertakesAPullIsTheNewerOne) {
  work();
  worker_.memory()[10] = 1_b;
  worker_.memory()[11] = 1_b;
  worker_.memory()[12] = 1_b;
  worker_.before_reply = [this] {
    host_[11] = 2_b;
    work();
  };
  pages_.pull(std::nullopt);
  EXPECT_EQ(host_[10], 1_b);
  EXPECT_EQ(host_[11], 2_b);
  EXPECT_EQ(host_[12], 1_b);
  EXPECT_EQ(host_, worker_.memory());
  // The device writes there what the host had before: that is a change.
  worker_.memory()[11] = 1_b;
  pages_.pull(std::nullopt);
  EXPECT_EQ(host_[11], 1_b);
  work();
  EXPECT_EQ(host_, worker_.memory());
}

TEST_F(PagesTest, APushThatOvertakesAPullHasNoGaps) {
  work();
  worker_.memory()[12] = 1_b;
  worker_.before_reply = [this] {
    host_[11] = host_[13] = 2_b;
    work();
  };
  pages_.pull(std::nullopt);
  EXPECT_EQ(host_[12], 1_b);
  EXPECT_EQ(worker_.memory()[12], 1_b);
  work();
  EXPECT_EQ(host_, worker_.memory());
}

TEST_F(PagesTest, APushThatAPullHasSeenIsTheOlderOne) {
  work();
  host_[11] = 2_b;
  // The push goes out while a pull is under way, but reaches the worker before the second part of
  // that pull, in which device code has answered it.
  for (auto& byte : worker_.memory()) byte = 9_b;
  worker_.memory()[11] = 0_b;
  worker_.before_reply = [&] {
    host_[kBytes - 1] = 3_b;
    work();
    worker_.before_look = [&] { worker_.memory()[kBytes - 1] = 4_b; };
  };
  pages_.pull(std::nullopt);
  EXPECT_EQ(host_[kBytes - 1], 4_b);
  EXPECT_EQ(host_[11], 2_b);
  EXPECT_EQ(host_, worker_.memory());
}

TEST_F(PagesTest, PullsOfManyThreadsShareFetches) {
  work();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      for (int round = 0; round < 100; ++round) {
        host_[static_cast<size_t>(i)] = static_cast<std::byte>(round);
        ASSERT_EQ(work(), CUDA_SUCCESS);
        ASSERT_EQ(pages_.pull(std::nullopt), CUDA_SUCCESS);
        ASSERT_EQ(host_[static_cast<size_t>(i)], static_cast<std::byte>(round));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  work();
  EXPECT_EQ(host_, worker_.memory());
  EXPECT_LE(worker_.fetches, 801u);
}

TEST_F(PagesTest, AWatchedWordTravelsWholeAndLast) {
  constexpr size_t kAt = 96;
  const size_t data = 5056 - (address() + 5056) % 64;  // whole lines, which hold no flag
  pages_.watch(address() + kAt, sizeof(uint32_t));
  host_[kAt + 1] = 1_b;
  std::fill_n(host_.begin() + static_cast<ptrdiff_t>(data), 128, 2_b);
  // The host stores data after the value that the push has read: what travels is the older value.
  bool all = false;
  pages_.begin_work();
  ASSERT_EQ(pages_.push({}, [&all] { return all; }), CUDA_SUCCESS);
  EXPECT_EQ(worker_.memory()[data], 2_b);
  EXPECT_EQ(worker_.memory()[kAt + 1], 0_b);
  all = true;
  const size_t before = worker_.pushed();
  ASSERT_EQ(pages_.push([this](uint64_t, std::span<const std::byte>) { host_[kAt + 1] = 3_b; },
                        [&all] { return all; }),
            CUDA_SUCCESS);
  pages_.end_work();
  EXPECT_EQ(worker_.memory()[kAt + 1], 1_b);
  EXPECT_EQ(worker_.pushed(), before + sizeof(uint32_t));
}

TEST_F(PagesTest, AWordIsReadBeforeWhatIsSentAheadOfIt) {
  pages_.watch(address(), sizeof(uint64_t));
  host_[5000] = 1_b;
  pages_.begin_work();
  pages_.push([this](uint64_t, std::span<const std::byte>) {
    host_[100] = 4_b;  // its page has been looked at
    host_[0] = 5_b;
  });
  pages_.end_work();
  EXPECT_EQ(worker_.memory()[0], 0_b);
  work();
  EXPECT_EQ(worker_.memory()[100], 4_b);
  EXPECT_EQ(worker_.memory()[0], 5_b);
  EXPECT_EQ(host_, worker_.memory());
}

TEST_F(PagesTest, AMemoryThatChangesAllTheTimeIsSentAllTheSame) {
  int looks = 0;
  host_[5000] = 1_b;
  ASSERT_EQ(pages_.push([&](uint64_t, auto) { host_[0] = static_cast<std::byte>(++looks); }),
            CUDA_SUCCESS);
  EXPECT_GT(looks, 2);
  EXPECT_EQ(worker_.memory()[5000], 1_b);
}

// A kernel that waits for the flag may run while the worker writes.
TEST_F(PagesTest, AWordAloneInItsLineGoesLast) {
  const size_t line = (4096 - address() % 4096) % 4096 + 64;  // all of it in one page
  work();
  for (size_t at = line + 64; at < line + 160; ++at) host_[at] = 1_b;
  host_[line + 4] = host_[line + 640] = 1_b;
  work();
  EXPECT_EQ(worker_.pushed_at(), (std::vector{line + 64, line + 4, line + 640}));
}

TEST_F(PagesTest, WhetherThatIsAllIsAskedInEveryPush) {
  // Before any other push begins; with or without something to send, and something that goes last.
  for (const size_t bytes : {0u, 8u, 64u}) {
    std::fill_n(host_.begin(), bytes, static_cast<std::byte>(bytes));
    std::thread other;
    std::atomic<bool> is_over = false;
    int asked = 0;
    const auto is_all = [&] {
      ++asked;
      other = std::thread([&] {
        (void)pages_.push();
        is_over = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_FALSE(is_over);
      return true;
    };
    EXPECT_EQ(pages_.push({}, is_all), CUDA_SUCCESS);
    EXPECT_EQ(asked, 1) << bytes;
    if (other.joinable()) other.join();
    EXPECT_EQ(worker_.memory(), host_);
  }
}

TEST_F(PagesTest, RegionsComeAndGo) {
  EXPECT_TRUE(observers_.any(Observers::kMirrors));
  EXPECT_EQ(pages_.device_pointer(address()), address());
  EXPECT_TRUE(pages_.touches(address() + kBytes - 1, 1));
  EXPECT_TRUE(pages_.touches(address() - 1, 2));
  EXPECT_FALSE(pages_.touches(address() - 1, 1));
  EXPECT_FALSE(pages_.touches(address() + kBytes, 100));
  worker_.link.stop();
  host_[0] = 1_b;
  EXPECT_EQ(work(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_TRUE(pages_.remove(address()));
  EXPECT_FALSE(pages_.remove(address()));
  EXPECT_FALSE(observers_.any(Observers::kMirrors));
  EXPECT_FALSE(pages_.device_pointer(address()));
  EXPECT_EQ(pages_.add(address(), 10, 2, [](CUdeviceptr*) { return CUDA_ERROR_OUT_OF_MEMORY; }),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(observers_.any(Observers::kMirrors));
}

TEST_F(PagesTest, ADestroyedContextTakesItsMirrors) {
  pages_.forget_context(2);
  EXPECT_TRUE(observers_.any(Observers::kMirrors));
  pages_.forget_context(1);
  EXPECT_FALSE(observers_.any(Observers::kMirrors));
}

}  // namespace
}  // namespace fargpu::client
