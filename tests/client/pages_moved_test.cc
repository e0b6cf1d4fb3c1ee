// Regions whose closed blocks are moved away: the others are the application's memory, which the
// system reads and writes; those that cannot be closed come with every pull.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "client/hostmem/pages.h"
#include "client/memory/user_faults.h"
#include "tests/client/pages_worker.h"

namespace fargpu::client {
namespace {

constexpr size_t kBlock = BlockStates::kBlock, kHead = 1000, kTail = 24, kBlocks = 6;
constexpr size_t kBytes = kHead + kBlocks * kBlock + kTail;
constexpr std::byte operator""_b(unsigned long long value) { return static_cast<std::byte>(value); }

// What is closed cannot be mistaken for the application's.
class FakeMover final : public PageGate {
 public:
  explicit FakeMover(std::span<std::byte> memory) : memory_(memory), shadow_(memory.size()) {}
  std::byte* local() const override { return shadow_.data(); }
  bool is_moved() const override { return true; }
  size_t head() const override { return kHead; }
  size_t tail() const override { return kTail; }
  bool watch() override { return true; }
  size_t close(size_t offset, size_t bytes) override {
    size_t done = 0;
    for (; done < bytes; done += kBlock) {
      const size_t at = offset + done;
      if (at < kHead || at + kTail >= kBytes || stuck.contains((at - kHead) / kBlock)) break;
      EXPECT_TRUE(closed.insert((at - kHead) / kBlock).second);
      move(memory_, shadow_, at);
    }
    return done;
  }
  void open(size_t offset, size_t bytes) override {
    for (size_t done = 0; done < bytes; done += kBlock) {
      if (closed.erase((offset + done - kHead) / kBlock) != 0)
        move(shadow_, memory_, offset + done);
    }
  }
  void fail(size_t offset, size_t bytes) override { open(offset, bytes); }
  void unwatch() override { open(kHead, kBlocks * kBlock); }

  std::set<size_t> closed, stuck;

 private:
  static void move(std::span<std::byte> from, std::span<std::byte> to, size_t at) {
    std::memcpy(&to[at], &from[at], kBlock);
    std::memset(&from[at], 0xee, kBlock);
  }
  const std::span<std::byte> memory_;
  mutable std::vector<std::byte> shadow_;
};

class MovedPagesTest : public testing::Test {
 protected:
  MovedPagesTest() {
    EXPECT_EQ(pages_.add(
                  address(), kBytes, 1,
                  [this](CUdeviceptr* pointer) {
                    *pointer = address();
                    return CUDA_SUCCESS;
                  },
                  [] { return false; }, [this] { return gate_; }),
              CUDA_SUCCESS);
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(host_.data()); }
  static size_t at(size_t block) { return kHead + block * kBlock; }
  void work() {
    pages_.begin_work();
    EXPECT_EQ(pages_.push(), CUDA_SUCCESS);
    pages_.end_work();
  }
  void finish() { EXPECT_EQ(pages_.pull(pages_.mark()), CUDA_SUCCESS); }
  void touch(size_t block) { EXPECT_EQ(pages_.bring(address() + at(block)), CUDA_SUCCESS); }

  static constexpr size_t kPage = 4096;
  std::vector<std::byte> around_ = std::vector<std::byte>(kBytes + 2 * kPage);
  // Whole pages begin behind the head.
  const std::span<std::byte> host_ = std::span(around_).subspan(
      2 * kPage - kHead - reinterpret_cast<uintptr_t>(around_.data()) % kPage, kBytes);
  std::shared_ptr<FakeMover> gate_ = std::make_shared<FakeMover>(host_);
  PagesWorker worker_{address(), kBytes, true};
  UserFaults faults_;
  Observers observers_;
  Pages pages_{worker_.link, observers_, 4 << 20, faults_};
};

TEST_F(MovedPagesTest, WhatIsClosedComesWhenItIsTouchedAndTheEdgesWithEachPull) {
  host_[0] = 1_b;
  host_[at(2)] = 2_b;
  host_[kBytes - 1] = 3_b;
  work();
  EXPECT_EQ(worker_.memory()[at(2)], 2_b);
  worker_.memory()[1] = 11_b;
  worker_.memory()[at(2) + 1] = 12_b;
  worker_.memory()[kBytes - 2] = 13_b;
  finish();
  EXPECT_EQ(gate_->closed.size(), kBlocks);
  EXPECT_EQ(host_[0], 1_b);
  EXPECT_EQ(host_[1], 11_b);
  EXPECT_EQ(host_[kBytes - 2], 13_b);
  EXPECT_EQ(host_[kBytes - 1], 3_b);
  const size_t pushed = worker_.pushed();
  host_[2] = 4_b;
  work();
  EXPECT_EQ(worker_.pushed(), pushed + 1) << "what is moved away is compared where it is";
  touch(2);
  EXPECT_EQ(host_[at(2)], 2_b);
  EXPECT_EQ(host_[at(2) + 1], 12_b);
  EXPECT_FALSE(gate_->closed.contains(2));
  host_[at(2) + 2] = 5_b;
  work();
  EXPECT_EQ(worker_.memory()[at(2) + 2], 5_b);
}

TEST_F(MovedPagesTest, WhatCannotBeClosedComesWithEachPull) {
  gate_->stuck = {1, 4};
  work();
  for (uint8_t round = 1; round < 4; ++round) {
    for (const size_t block : {0, 1, 4, 5}) worker_.memory()[at(block) + 7] = std::byte{round};
    finish();
    EXPECT_EQ(gate_->closed, (std::set<size_t>{0, 2, 3, 5}));
    EXPECT_EQ(host_[at(1) + 7], std::byte{round});
    EXPECT_EQ(host_[at(4) + 7], std::byte{round});
    host_[at(4) + 8] = std::byte{round};
    work();
    EXPECT_EQ(worker_.memory()[at(4) + 8], std::byte{round});
  }
  touch(0);
  EXPECT_EQ(host_[at(0) + 7], 3_b);
}

// Another thread of the application stores data and then a flag, while memory is compared that lies
// between the two.
TEST_F(MovedPagesTest, WhatIsSentWasThereAtOnce) {
  work();
  host_[at(2)] = 1_b;
  int looks = 0;
  ASSERT_EQ(pages_.push([&](uint64_t, auto) {
    if (++looks <= 2) host_[at(0)] = host_[at(5)] = static_cast<std::byte>(looks);
  }),
            CUDA_SUCCESS);
  EXPECT_EQ(worker_.memory()[at(0)], 2_b);
  EXPECT_EQ(worker_.memory()[at(5)], 2_b);
}

// A second look finds a flag, and the data lies behind what it has to look at for the first one's
// sake.
TEST_F(MovedPagesTest, WhatLiesBehindAChangeIsLookedAtAgain) {
  work();
  host_[at(3)] = 1_b;
  int looks = 0;
  ASSERT_EQ(pages_.push([&](uint64_t, auto) {
    ++looks;
    if (looks == 1) host_[at(0)] = 1_b;
    if (looks == 2) host_[at(5)] = host_[at(2)] = 1_b;
  }),
            CUDA_SUCCESS);
  EXPECT_EQ(worker_.memory()[at(2)], 1_b);
  EXPECT_EQ(worker_.memory()[at(5)], 1_b);
}

// A thread that stores all the time waits for a look.
TEST_F(MovedPagesTest, MemoryThatChangesAllTheTimeIsClosedForALook) {
  gate_->stuck = {4};
  work();
  host_[at(3)] = 1_b;
  uint8_t stored = 0;
  pages_.begin_work();
  ASSERT_EQ(pages_.push([&](uint64_t, auto) {
    if (!gate_->closed.empty()) {
      EXPECT_EQ(gate_->closed, (std::set<size_t>{0, 1, 2, 3, 5}));
      return;
    }
    ++stored;
    for (const size_t block : {1, 2, 3, 5}) host_[at(block) + 64 * 5] = std::byte{stored};
  }),
            CUDA_SUCCESS);
  pages_.end_work();
  EXPECT_TRUE(gate_->closed.empty());
  for (const size_t block : {1, 2, 3, 5}) {
    EXPECT_EQ(host_[at(block) + 64 * 5], std::byte{stored});
    EXPECT_EQ(worker_.memory()[at(block) + 64 * 5], std::byte{stored});
  }
  finish();
  EXPECT_EQ(gate_->closed, (std::set<size_t>{0, 1, 2, 3, 5})) << "it was open";
}

TEST_F(MovedPagesTest, WhatIsNotFetchedAnyMoreStaysReadable) {
  host_[at(3)] = 9_b;
  work();
  finish();
  worker_.result = CUDA_ERROR_UNKNOWN;
  (void)pages_.bring(address() + at(3));
  EXPECT_EQ(host_[at(3)], 9_b);
  EXPECT_FALSE(gate_->closed.contains(3));
}

TEST_F(MovedPagesTest, AForkFindsEverythingThere) {
  host_[at(3)] = 9_b;
  work();
  worker_.memory()[at(3) + 1] = 10_b;
  finish();
  pages_.before_fork();
  EXPECT_TRUE(gate_->closed.empty());
  EXPECT_EQ(host_[at(3)], 9_b);
  EXPECT_EQ(host_[at(3) + 1], 10_b);
  pages_.after_fork();
  work();
  finish();
  EXPECT_EQ(gate_->closed.size(), kBlocks);
}

TEST_F(MovedPagesTest, AtItsEndItIsTheApplicationsAlone) {
  work();
  worker_.memory()[at(5)] = 10_b;
  finish();
  ASSERT_EQ(pages_.keep_open(address()), CUDA_SUCCESS);
  EXPECT_TRUE(worker_.is_always_fetched());
  EXPECT_EQ(host_[at(5)], 10_b);
  EXPECT_TRUE(gate_->closed.empty());
}

}  // namespace
}  // namespace fargpu::client
