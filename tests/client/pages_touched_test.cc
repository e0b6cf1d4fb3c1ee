// Regions that come when they are touched: what is fetched, compared and closed when.
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "client/memory/pages.h"

namespace fargpu::client {
namespace {

constexpr size_t kBlock = BlockStates::kBlock;
constexpr std::byte operator""_b(unsigned long long value) { return static_cast<std::byte>(value); }

// The application's side: an access to a closed block is reported, not made.
class FakeGate final : public PageGate {
 public:
  explicit FakeGate(std::vector<std::byte>& memory)
      : memory_(memory), closed((memory.size() + kBlock - 1) / kBlock) {}
  std::byte* local() const override { return memory_.data(); }
  bool watch() override { return true; }
  void close(size_t offset, size_t bytes) override { set(offset, bytes, true); }
  void open(size_t offset, size_t bytes) override { set(offset, bytes, false); }
  void fail(size_t offset, size_t) override { failed.insert(offset / kBlock); }
  void unwatch() override { watched = false; }
  size_t count_closed() const {
    size_t count = 0;
    for (const bool each : closed) count += each;
    return count;
  }

 private:
  void set(size_t offset, size_t bytes, bool value) {
    for (size_t at = offset / kBlock; at * kBlock < offset + bytes; ++at) closed[at] = value;
  }
  std::vector<std::byte>& memory_;

 public:
  std::vector<bool> closed;
  std::set<size_t> failed;
  bool watched = true;
};

class TouchedWire final : public Pages::Wire {
 public:
  TouchedWire(uint64_t address, size_t bytes) : memory(bytes), agreed_(address, bytes) {}
  size_t limit() const override { return limit_; }
  CUresult push(std::span<const std::byte> runs) override {
    ++pushes_;
    pages::RunReader reader(runs);
    while (const auto run = reader.next()) {
      agreed_.adopt(*run, memory.data());
      pushed += run->data.size();
    }
    return result;
  }
  CUresult fetch(uint64_t, std::span<std::byte>, Fetched* fetched) override {
    ++whole;
    *fetched = {};
    return result;
  }
  CUresult fetch_part(uint64_t address, uint64_t bytes, std::span<std::byte> buffer,
                      Fetched* fetched) override {
    const size_t begin = address - agreed_.address();
    parts.push_back({begin / kBlock, bytes / kBlock});
    pages::RunWriter runs(buffer.size());
    const size_t end = agreed_.collect(memory.data(), begin, begin + bytes, runs);
    std::copy(runs.bytes().begin(), runs.bytes().end(), buffer.begin());
    *fetched = {runs.bytes().size(), end < begin + bytes ? agreed_.address() + end : 0, pushes_};
    if (before_reply) std::exchange(before_reply, nullptr)();
    return result;
  }
  CUresult fetch_always(uint64_t) override {
    is_always_fetched = true;
    return result;
  }

  std::vector<std::byte> memory;
  std::vector<std::pair<size_t, size_t>> parts;  // first block, whole blocks
  size_t pushed = 0, whole = 0;
  bool is_always_fetched = false;
  CUresult result = CUDA_SUCCESS;
  std::function<void()> before_reply;
  size_t limit_ = 4 << 20;

 private:
  pages::Agreement agreed_;
  uint64_t pushes_ = 0;
};

class TouchedPagesTest : public testing::Test {
 protected:
  static constexpr size_t kBlocks = 100, kBytes = kBlocks * kBlock - 5000;
  static constexpr uint64_t kAddress = 0x10'0000'0000;
  TouchedPagesTest()
      : host_(kBytes), gate_(std::make_shared<FakeGate>(host_)), wire_(kAddress, kBytes) {
    pages_.set_helpers({.wake = [this] { ++woken_; }, .settle = [this] { ++settling_; }});
    EXPECT_EQ(pages_.add(
                  kAddress, kBytes, 1,
                  [](CUdeviceptr* pointer) {
                    *pointer = kAddress;
                    return CUDA_SUCCESS;
                  },
                  [] { return false; }, [this] { return gate_; }),
              CUDA_SUCCESS);
  }
  void work() {
    pages_.begin_work();
    EXPECT_EQ(pages_.push(wire_), CUDA_SUCCESS);
    pages_.end_work();
  }
  void finish() { EXPECT_EQ(pages_.pull(wire_, pages_.mark()), CUDA_SUCCESS); }
  // The application's access.
  std::byte& at(size_t offset) {
    for (int tries = 0; gate_->closed[offset / kBlock] && tries < 3; ++tries)
      EXPECT_EQ(pages_.bring(wire_, kAddress + offset), CUDA_SUCCESS);
    return host_[offset];
  }

  std::vector<std::byte> host_;
  std::shared_ptr<FakeGate> gate_;
  TouchedWire wire_;
  static constexpr auto kLongestRead = std::chrono::milliseconds(30);
  Pages pages_{kLongestRead};
  int woken_ = 0, settling_ = 0;
};

TEST_F(TouchedPagesTest, APullOnlyCloses) {
  work();
  for (std::byte& each : wire_.memory) each = 3_b;
  finish();
  EXPECT_EQ(gate_->count_closed(), kBlocks);
  EXPECT_TRUE(wire_.parts.empty());
  EXPECT_EQ(wire_.whole, 0u) << "there is no other memory";
  EXPECT_EQ(at(5 * kBlock + 7), 3_b);
  EXPECT_EQ(wire_.parts, (std::vector<std::pair<size_t, size_t>>{{5, 1}}));
  EXPECT_EQ(at(5 * kBlock + 9), 3_b);
  EXPECT_EQ(wire_.parts.size(), 1u);
  EXPECT_EQ(host_[6 * kBlock], 0_b);
  EXPECT_EQ(gate_->count_closed(), kBlocks - 1);
  finish();
  EXPECT_EQ(gate_->count_closed(), kBlocks - 1) << "no work since";
}

TEST_F(TouchedPagesTest, SequentialTouchesComeInLargerAndLargerParts) {
  work();
  finish();
  for (size_t block = 0; block < kBlocks; ++block) (void)at(block * kBlock);
  EXPECT_EQ(wire_.parts.size(), 6u);  // 2, 4, 8, 16, 32 and the rest
}

TEST_F(TouchedPagesTest, OnlyWhatWasOpenLatelyIsCompared) {
  work();
  finish();
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(kLongestRead);
    work();
  }
  host_[20 * kBlock] = 1_b;  // behind the gate, where nothing can be written
  at(30 * kBlock) = 2_b;
  work();
  EXPECT_EQ(wire_.pushed, 1u);
  EXPECT_EQ(wire_.memory[30 * kBlock], 2_b);
  at(30 * kBlock + 1) = 3_b;
  finish();  // it is closed before it was pushed
  EXPECT_EQ(gate_->count_closed(), kBlocks);
  work();
  EXPECT_EQ(wire_.memory[30 * kBlock + 1], 3_b);
  EXPECT_EQ(wire_.pushed, 2u);
}

TEST_F(TouchedPagesTest, WhatTheSystemReadsIntoClosedMemoryIsSent) {
  work();
  (void)at(20 * kBlock);  // a read(2) with O_DIRECT begins
  finish();
  work();
  ASSERT_TRUE(gate_->closed[20]);
  host_[20 * kBlock] = 1_b;
  work();
  EXPECT_EQ(wire_.memory[20 * kBlock], 1_b);
}

TEST_F(TouchedPagesTest, BothEndsWriteOneBlock) {
  work();
  finish();
  at(100) = 1_b;
  wire_.memory[101] = 2_b;
  pages_.begin_work();  // work that does not see the host's byte yet
  pages_.end_work();
  finish();
  EXPECT_EQ(at(101), 2_b);
  EXPECT_EQ(host_[100], 1_b);
  work();
  EXPECT_EQ(wire_.memory[100], 1_b);
  EXPECT_EQ(wire_.memory[101], 2_b);
}

TEST_F(TouchedPagesTest, NewsCloseEverythingElseWhileWorkMayRun) {
  work();
  EXPECT_EQ(pages_.pull(wire_, std::nullopt), CUDA_SUCCESS);
  (void)at(10 * kBlock);
  (void)at(20 * kBlock);
  EXPECT_EQ(gate_->count_closed(), kBlocks - 2) << "nothing new: nobody can tell";
  EXPECT_EQ(settling_, 1) << "once, until it has ended";
  wire_.memory[30 * kBlock] = 1_b;
  EXPECT_EQ(at(30 * kBlock), 1_b);
  EXPECT_EQ(gate_->count_closed(), kBlocks - 1);
  pages_.settled();
  finish();
  (void)at(10 * kBlock);
  wire_.memory[40 * kBlock] = 1_b;
  (void)at(40 * kBlock);
  EXPECT_EQ(gate_->count_closed(), kBlocks - 2) << "no work is left";
  EXPECT_EQ(settling_, 1);
}

TEST_F(TouchedPagesTest, WhatIsOpenIsClosedAfterAWhileOfWork) {
  EXPECT_FALSE(pages_.look());
  work();
  EXPECT_EQ(woken_, 1);
  auto due = pages_.look();
  ASSERT_TRUE(due);
  EXPECT_EQ(gate_->count_closed(), 0u);
  std::this_thread::sleep_until(*due);
  EXPECT_FALSE(pages_.look());
  EXPECT_EQ(gate_->count_closed(), kBlocks);
  work();
  EXPECT_EQ(woken_, 1) << "nothing is open";
  wire_.memory[0] = 1_b;
  EXPECT_EQ(at(0), 1_b);
  wire_.memory[0] = 2_b;
  due = pages_.look();
  ASSERT_TRUE(due);
  std::this_thread::sleep_until(*due);
  EXPECT_FALSE(pages_.look());
  EXPECT_EQ(at(0), 2_b);
}

TEST_F(TouchedPagesTest, APushDuringAFetchIsTheNewerOne) {
  work();
  wire_.memory[3 * kBlock] = 1_b;
  wire_.memory[3 * kBlock + 1] = 1_b;
  at(3 * kBlock + 1) = 2_b;
  pages_.begin_work();
  pages_.end_work();
  EXPECT_EQ(pages_.pull(wire_, std::nullopt), CUDA_SUCCESS);
  wire_.before_reply = [this] { work(); };
  EXPECT_EQ(at(3 * kBlock), 1_b);
  EXPECT_EQ(host_[3 * kBlock + 1], 2_b);
  EXPECT_EQ(wire_.memory[3 * kBlock + 1], 2_b);
}

TEST_F(TouchedPagesTest, AnAnswerInPartsIsRepeatedUntilNothingIsNew) {
  wire_.limit_ = 3000;
  work();
  EXPECT_EQ(pages_.pull(wire_, std::nullopt), CUDA_SUCCESS);
  for (size_t i = 0; i < 8000; ++i) wire_.memory[i] = 1_b;
  wire_.before_reply = [this] {
    wire_.memory[0] = 2_b;  // behind the back of the first part
    wire_.memory[7999] = 2_b;
  };
  EXPECT_EQ(at(0), 2_b);
  EXPECT_EQ(host_[7999], 2_b);
}

TEST_F(TouchedPagesTest, AnOpenRegionOfOneBlockComesWithThePull) {
  std::vector<std::byte> host(5000);
  auto gate = std::make_shared<FakeGate>(host);
  const uint64_t address = kAddress + 200 * kBlock;
  TouchedWire wire(address, host.size());
  Pages pages;
  pages.set_helpers({.wake = [] {}, .settle = [] {}});
  ASSERT_EQ(pages.add(
                address, host.size(), 1, [](CUdeviceptr*) { return CUDA_SUCCESS; },
                [] { return false; }, [&] { return gate; }),
            CUDA_SUCCESS);
  const auto work = [&](std::byte value) {
    pages.begin_work();
    ASSERT_EQ(pages.push(wire), CUDA_SUCCESS);
    pages.end_work();
    wire.memory[4000] = value;
  };
  work(1_b);
  ASSERT_EQ(pages.pull(wire, std::nullopt), CUDA_SUCCESS);
  EXPECT_EQ(host[4000], 1_b);
  EXPECT_EQ(gate->count_closed(), 0u);
  work(2_b);
  // The application does not look at it any more.
  wire.result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  EXPECT_EQ(pages.pull(wire, pages.mark()), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(gate->count_closed(), 1u);
  EXPECT_TRUE(gate->failed.empty()) << "nobody has touched it";
  wire.result = CUDA_SUCCESS;
  const size_t before = wire.parts.size();
  work(3_b);
  ASSERT_EQ(pages.pull(wire, pages.mark()), CUDA_SUCCESS);
  EXPECT_EQ(wire.parts.size(), before) << "closed regions stay so";
  ASSERT_EQ(pages.bring(wire, address), CUDA_SUCCESS);
  EXPECT_EQ(host[4000], 3_b);
}

TEST_F(TouchedPagesTest, WhatCannotComeFails) {
  work();
  finish();
  wire_.result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  EXPECT_EQ(pages_.bring(wire_, kAddress + 2 * kBlock), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(gate_->failed, std::set<size_t>{2});
  EXPECT_EQ(pages_.bring(wire_, kAddress - 1), CUDA_ERROR_NOT_MAPPED);
}

TEST_F(TouchedPagesTest, ItIsKeptOpen) {
  work();
  wire_.memory[9 * kBlock] = 1_b;
  finish();
  EXPECT_EQ(pages_.keep_all_open(wire_, 2), CUDA_SUCCESS);
  EXPECT_EQ(gate_->count_closed(), kBlocks) << "of another context";
  EXPECT_TRUE(pages_.any_gated());
  EXPECT_EQ(pages_.keep_all_open(wire_, 1), CUDA_SUCCESS);
  EXPECT_EQ(gate_->count_closed(), 0u);
  EXPECT_EQ(host_[9 * kBlock], 1_b);
  EXPECT_FALSE(pages_.any_gated());
  EXPECT_TRUE(wire_.is_always_fetched);
  // Nobody closes it again before its context, or the process, has ended.
  EXPECT_FALSE(gate_->watched);
  pages_.forget_context(1);
  EXPECT_TRUE(gate_->failed.empty());
}

TEST_F(TouchedPagesTest, AnEndedContextLeavesNothingOldBehind) {
  work();
  finish();
  (void)at(0);
  pages_.forget_context(1);
  EXPECT_FALSE(gate_->watched);
  EXPECT_EQ(gate_->failed.size(), 1u) << "one run of blocks that never came";
  EXPECT_EQ(pages_.bring(wire_, kAddress), CUDA_ERROR_NOT_MAPPED);
}

TEST(BlockStates, RunsAreFoundAndSuspicionEnds) {
  BlockStates blocks(10 * kBlock - 1);
  EXPECT_EQ(blocks.bytes({8, 10}), 2 * kBlock - 1);
  blocks.close({0, 10});
  EXPECT_FALSE(blocks.any_open());
  EXPECT_EQ(blocks.next_suspect(0).end, 10u);
  blocks.compared({0, 10}, false);
  blocks.compared({0, 10}, true);
  EXPECT_EQ(blocks.next_suspect(0).end, 10u) << "it was open a short while ago";
  blocks.compared({0, 10}, true);
  EXPECT_TRUE(blocks.next_suspect(0).empty());
  blocks.open({4, 6});
  EXPECT_EQ(blocks.next_open(0).first, 4u);
  EXPECT_EQ(blocks.next_closed(4, 100).first, 6u);
  EXPECT_EQ(blocks.next_closed(0, 2).end, 2u);
  for (int i = 0; i < 2; ++i) blocks.compared({4, 6}, true);
  EXPECT_EQ(blocks.next_suspect(0).first, 4u) << "what is open stays suspect";
  blocks.close({5, 6});
  for (int i = 0; i < 2; ++i) blocks.compared({4, 6}, true);
  EXPECT_EQ(blocks.next_suspect(0).end, 5u);
  EXPECT_TRUE(blocks.next_suspect(5).empty());
}

}  // namespace
}  // namespace fargpu::client
