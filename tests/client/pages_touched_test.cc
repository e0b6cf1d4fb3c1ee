// Regions that come when they are touched: what is fetched, compared and closed when.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "client/hostmem/pages.h"
#include "client/memory/user_faults.h"
#include "common/copy/thread_team.h"
#include "tests/client/pages_worker.h"

namespace fargpu::client {
namespace {

constexpr size_t kBlock = BlockStates::kBlock;
// Made before any test changes the environment.
const ThreadTeam& kTeam = ThreadTeam::get();
constexpr std::byte operator""_b(unsigned long long value) { return static_cast<std::byte>(value); }

// The application's side: an access to a closed block is reported, not made.
class FakeGate final : public PageGate {
 public:
  explicit FakeGate(std::vector<std::byte>& memory)
      : memory_(memory), closed((memory.size() + kBlock - 1) / kBlock) {}
  std::byte* local() const override { return memory_.data(); }
  bool watch() override { return true; }
  size_t close(size_t offset, size_t bytes) override {
    set(offset, bytes, true);
    return bytes;
  }
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

// The region with this gate; the device sees it where the application does.
CUresult add_region(Pages& pages, uint64_t address, size_t bytes,
                    const std::shared_ptr<FakeGate>& gate, bool read_only = false) {
  return pages.add(
      address, bytes, 1,
      [address](CUdeviceptr* pointer) {
        *pointer = address;
        return CUDA_SUCCESS;
      },
      [] { return false; }, [&gate] { return gate; }, read_only);
}

class TouchedPagesTest : public testing::Test {
 protected:
  static constexpr size_t kBlocks = 100, kBytes = kBlocks * kBlock - 5000;
  static constexpr uint64_t kAddress = 0x10'0000'0000;
  explicit TouchedPagesTest(uint64_t piece_bytes = 4 << 20)
      : host_(kBytes),
        gate_(std::make_shared<FakeGate>(host_)),
        worker_(kAddress, kBytes, true),
        pages_(worker_.link, observers_, piece_bytes, faults_, kLongestRead,
               /*asks_descriptors=*/false) {
    EXPECT_EQ(add_region(pages_, kAddress, kBytes, gate_), CUDA_SUCCESS);
  }
  void work() {
    pages_.begin_work();
    EXPECT_EQ(pages_.push(), CUDA_SUCCESS);
    pages_.end_work();
  }
  void finish() { EXPECT_EQ(pages_.pull(pages_.mark()), CUDA_SUCCESS); }
  // The application's access.
  std::byte& at(size_t offset) {
    for (int tries = 0; gate_->closed[offset / kBlock] && tries < 3; ++tries)
      EXPECT_EQ(pages_.bring(kAddress + offset), CUDA_SUCCESS);
    return host_[offset];
  }

  std::vector<std::byte> host_;
  std::shared_ptr<FakeGate> gate_;
  PagesWorker worker_;
  static constexpr auto kLongestRead = std::chrono::milliseconds(30);
  UserFaults faults_;
  Observers observers_;
  Pages pages_;
};

TEST_F(TouchedPagesTest, APullOnlyCloses) {
  work();
  for (std::byte& each : worker_.memory()) each = 3_b;
  finish();
  EXPECT_EQ(gate_->count_closed(), kBlocks);
  EXPECT_TRUE(worker_.parts.empty());
  EXPECT_EQ(worker_.fetches, 0u) << "there is no other memory";
  EXPECT_EQ(at(5 * kBlock + 7), 3_b);
  EXPECT_EQ(worker_.parts, (std::vector<std::pair<size_t, size_t>>{{5, 1}}));
  EXPECT_EQ(at(5 * kBlock + 9), 3_b);
  EXPECT_EQ(worker_.parts.size(), 1u);
  EXPECT_EQ(host_[6 * kBlock], 0_b);
  EXPECT_EQ(gate_->count_closed(), kBlocks - 1);
  finish();
  EXPECT_EQ(gate_->count_closed(), kBlocks - 1) << "no work since";
}

TEST_F(TouchedPagesTest, SequentialTouchesComeInLargerAndLargerParts) {
  work();
  finish();
  for (size_t block = 0; block < kBlocks; ++block) (void)at(block * kBlock);
  EXPECT_EQ(worker_.parts.size(), 6u);  // 2, 4, 8, 16, 32 and the rest
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
  EXPECT_EQ(worker_.pushed(), 1u);
  EXPECT_EQ(worker_.memory()[30 * kBlock], 2_b);
  at(30 * kBlock + 1) = 3_b;
  finish();  // it is closed before it was pushed
  EXPECT_EQ(gate_->count_closed(), kBlocks);
  work();
  EXPECT_EQ(worker_.memory()[30 * kBlock + 1], 3_b);
  EXPECT_EQ(worker_.pushed(), 2u);
}

TEST_F(TouchedPagesTest, WhatTheSystemReadsIntoClosedMemoryIsSent) {
  work();
  (void)at(20 * kBlock);  // a read(2) with O_DIRECT begins
  finish();
  work();
  ASSERT_TRUE(gate_->closed[20]);
  host_[20 * kBlock] = 1_b;
  work();
  EXPECT_EQ(worker_.memory()[20 * kBlock], 1_b);
}

TEST_F(TouchedPagesTest, WhatTheSystemHasReadIsSentWithTheFlagThatTellsOfIt) {
  work();
  (void)at(20 * kBlock);
  (void)at(10 * kBlock);
  finish();
  work();
  at(10 * kBlock + 64) = 2_b;
  host_[20 * kBlock] = 1_b;
  ASSERT_EQ(pages_.push(), CUDA_SUCCESS);  // before a wait
  EXPECT_EQ(worker_.memory()[10 * kBlock + 64], 2_b);
  EXPECT_EQ(worker_.memory()[20 * kBlock], 1_b);
}

TEST_F(TouchedPagesTest, WhatTheSystemHasReadIsSentBeforeAWordThatIsAwaited) {
  pages_.watch(kAddress + 10 * kBlock, sizeof(uint64_t));
  work();
  finish();
  work();
  host_[20 * kBlock] = 1_b;
  at(10 * kBlock) = 2_b;
  ASSERT_EQ(pages_.push(), CUDA_SUCCESS);
  EXPECT_EQ(worker_.memory()[10 * kBlock], 2_b);
  EXPECT_EQ(worker_.memory()[20 * kBlock], 1_b);
}

TEST_F(TouchedPagesTest, WhatWasClosedBeforeAnyLookIsSentBeforeAWait) {
  work();
  finish();
  work();
  at(10 * kBlock + 64) = 2_b;
  EXPECT_EQ(pages_.pull(std::nullopt), CUDA_SUCCESS);
  ASSERT_TRUE(gate_->closed[10]);
  ASSERT_EQ(pages_.push(), CUDA_SUCCESS);
  EXPECT_EQ(worker_.memory()[10 * kBlock + 64], 2_b);
}

// It is looked at once, where it cannot change, and the end of the work need not close it.
class LargeTouchedPagesTest : public testing::Test {
 protected:
  static constexpr uint64_t kAddress = 0x10'0000'0000;
  static constexpr size_t kBlocks = 200, kBytes = kBlocks * kBlock;
  LargeTouchedPagesTest() { EXPECT_EQ(add_region(pages_, kAddress, kBytes, gate_), CUDA_SUCCESS); }
  // How many bytes were shown.
  size_t work() {
    size_t visited = 0;
    pages_.begin_work();
    EXPECT_EQ(pages_.push([&](uint64_t address, auto bytes) {
      EXPECT_EQ(gate_->count_closed(), kBlocks);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), host_.data() + (address - kAddress)));
      visited += bytes.size();
    }),
              CUDA_SUCCESS);
    pages_.end_work();
    return visited;
  }
  void open_all() {
    EXPECT_EQ(pages_.pull(pages_.mark()), CUDA_SUCCESS);
    for (size_t block = 0; block < kBlocks; ++block) {
      while (gate_->closed[block]) ASSERT_EQ(pages_.bring(kAddress + block * kBlock), CUDA_SUCCESS);
    }
  }

  std::vector<std::byte> host_ = std::vector<std::byte>(kBytes);
  std::shared_ptr<FakeGate> gate_ = std::make_shared<FakeGate>(host_);
  PagesWorker worker_{kAddress, kBytes, true};
  UserFaults faults_;
  Observers observers_;
  Pages pages_{worker_.link, observers_, 4 << 20, faults_};
};

TEST_F(LargeTouchedPagesTest, MuchMemoryIsClosedForTheLook) {
  std::fill(host_.begin(), host_.end(), 1_b);
  ASSERT_EQ(pages_.push(), CUDA_SUCCESS);  // before a wait
  EXPECT_EQ(gate_->count_closed(), 0u) << "nothing will close it";
  std::fill(host_.begin(), host_.end(), 2_b);
  EXPECT_LT(work(), kBytes + kBytes / 8) << "pages at the ends of messages come twice";
  EXPECT_EQ(gate_->count_closed(), kBlocks);
  EXPECT_TRUE(std::equal(host_.begin(), host_.end(), worker_.memory().begin()));
  ASSERT_EQ(pages_.bring(kAddress + 150 * kBlock), CUDA_SUCCESS);
  EXPECT_FALSE(gate_->closed[150]);
}

// What several threads find is sent as one thread would send it: by address, words that may be
// flags behind everything else, and an awaited word last. FARGPU_COPY_THREADS is set for this test.
TEST_F(LargeTouchedPagesTest, SeveralThreadsFindWhatOneWouldFind) {
  constexpr size_t kAwaited = 5 * kBlock + 128, kLate = 24;
  ASSERT_GT(kTeam.threads(), 1u);
  pages_.watch(kAddress + kAwaited, 8);
  (void)work();
  for (int round = 1; round <= 4; ++round) {
    open_all();
    (void)worker_.pushed_at();
    const size_t pushed = worker_.pushed();
    host_[kAwaited] = static_cast<std::byte>(round);
    std::set<size_t> runs, late;
    for (size_t at = 7 * kBlock; at + 4096 < kBytes;
         at += kBlock + 4096 * static_cast<size_t>(round)) {
      const size_t line = (at + 200) / 64 * 64;
      host_[line] = host_[line + 32] = static_cast<std::byte>(round);
      runs.insert({line, line + 32});
      host_[line + 64 + kLate] = static_cast<std::byte>(round);
      late.insert(line + 64 + kLate);
    }
    EXPECT_EQ(work(), 4096 * (runs.size() / 2) + 4096 * late.size());
    const std::vector<size_t> sent = worker_.pushed_at();
    std::vector<size_t> expected(runs.begin(), runs.end());
    expected.insert(expected.end(), late.begin(), late.end());
    expected.push_back(kAwaited);
    EXPECT_EQ(sent, expected) << round;
    EXPECT_EQ(worker_.pushed() - pushed, runs.size() + late.size() + 8);
    EXPECT_TRUE(std::equal(host_.begin(), host_.end(), worker_.memory().begin()));
  }
}

// What cannot change there is not asked for.
TEST(ReadOnlyTouchedPagesTest, NothingIsFetched) {
  constexpr uint64_t kAddress = 0x10'0000'0000;
  constexpr size_t kBlocks = 8, kBytes = kBlocks * kBlock;
  std::vector<std::byte> host(kBytes);
  auto gate = std::make_shared<FakeGate>(host);
  PagesWorker worker(kAddress, kBytes, true);
  UserFaults faults;
  Observers observers;
  Pages pages(worker.link, observers, 4 << 20, faults);
  ASSERT_EQ(add_region(pages, kAddress, kBytes, gate, /*read_only=*/true), CUDA_SUCCESS);
  const auto work = [&] {
    pages.begin_work();
    EXPECT_EQ(pages.push(), CUDA_SUCCESS);
    pages.end_work();
    EXPECT_EQ(pages.pull(pages.mark()), CUDA_SUCCESS);
  };
  host[0] = 1_b;
  work();
  EXPECT_EQ(gate->count_closed(), kBlocks);
  EXPECT_EQ(worker.memory()[0], 1_b);
  worker.memory()[3 * kBlock] = 7_b;  // a driver that does not know the flag
  ASSERT_EQ(pages.bring(kAddress + 3 * kBlock), CUDA_SUCCESS);
  EXPECT_FALSE(gate->closed[3]);
  EXPECT_EQ(host[3 * kBlock], 0_b);
  host[3 * kBlock + 1] = 2_b;
  work();
  EXPECT_EQ(worker.memory()[3 * kBlock + 1], 2_b);
  ASSERT_EQ(pages.keep_open(kAddress), CUDA_SUCCESS);
  EXPECT_EQ(gate->count_closed(), 0u);
  EXPECT_TRUE(worker.parts.empty());
  EXPECT_FALSE(worker.is_always_fetched());
}

TEST_F(TouchedPagesTest, BothEndsWriteOneBlock) {
  work();
  finish();
  at(100) = 1_b;
  worker_.memory()[101] = 2_b;
  pages_.begin_work();  // work that does not see the host's byte yet
  pages_.end_work();
  finish();
  EXPECT_EQ(at(101), 2_b);
  EXPECT_EQ(host_[100], 1_b);
  work();
  EXPECT_EQ(worker_.memory()[100], 1_b);
  EXPECT_EQ(worker_.memory()[101], 2_b);
}

TEST_F(TouchedPagesTest, NewsCloseEverythingElseWhileWorkMayRun) {
  work();
  EXPECT_EQ(pages_.pull(std::nullopt), CUDA_SUCCESS);
  (void)at(10 * kBlock);
  (void)at(20 * kBlock);
  EXPECT_EQ(gate_->count_closed(), kBlocks - 2) << "nothing new: nobody can tell";
  EXPECT_TRUE(pages_.is_to_settle());
  (void)at(21 * kBlock);
  EXPECT_FALSE(pages_.is_to_settle()) << "once, until it has ended";
  worker_.memory()[30 * kBlock] = 1_b;
  EXPECT_EQ(at(30 * kBlock), 1_b);
  EXPECT_EQ(gate_->count_closed(), kBlocks - 1);
  pages_.settled();
  finish();
  (void)at(10 * kBlock);
  worker_.memory()[40 * kBlock] = 1_b;
  (void)at(40 * kBlock);
  EXPECT_EQ(gate_->count_closed(), kBlocks - 2) << "no work is left";
  EXPECT_FALSE(pages_.is_to_settle());
}

TEST_F(TouchedPagesTest, WhatIsOpenIsClosedAfterAWhileOfWork) {
  // On a busy machine the while is over before the first look.
  const auto look_until_closed = [this] {
    if (const auto due = pages_.look()) {
      EXPECT_LT(gate_->count_closed(), kBlocks);
      std::this_thread::sleep_until(*due);
      EXPECT_FALSE(pages_.look());
    }
    EXPECT_EQ(gate_->count_closed(), kBlocks);
  };
  EXPECT_FALSE(pages_.look());
  EXPECT_EQ(gate_->count_closed(), 0u);
  work();
  look_until_closed();
  work();
  EXPECT_FALSE(pages_.look()) << "nothing is open";
  worker_.memory()[0] = 1_b;
  EXPECT_EQ(at(0), 1_b);
  worker_.memory()[0] = 2_b;
  look_until_closed();
  EXPECT_EQ(at(0), 2_b);
}

TEST_F(TouchedPagesTest, APushDuringAFetchIsTheNewerOne) {
  work();
  worker_.memory()[3 * kBlock] = 1_b;
  worker_.memory()[3 * kBlock + 1] = 1_b;
  at(3 * kBlock + 1) = 2_b;
  pages_.begin_work();
  pages_.end_work();
  EXPECT_EQ(pages_.pull(std::nullopt), CUDA_SUCCESS);
  worker_.before_reply = [this] { work(); };
  EXPECT_EQ(at(3 * kBlock), 1_b);
  EXPECT_EQ(host_[3 * kBlock + 1], 2_b);
  EXPECT_EQ(worker_.memory()[3 * kBlock + 1], 2_b);
}

class SmallAnswersTest : public TouchedPagesTest {
 protected:
  SmallAnswersTest() : TouchedPagesTest(3000) {}
};

TEST_F(SmallAnswersTest, AnAnswerInPartsIsRepeatedUntilNothingIsNew) {
  work();
  EXPECT_EQ(pages_.pull(std::nullopt), CUDA_SUCCESS);
  std::fill_n(worker_.memory().begin(), 8000, 1_b);
  worker_.before_reply = [this] {
    worker_.memory()[0] = 2_b;  // behind the back of the first part
    worker_.memory()[7999] = 2_b;
  };
  EXPECT_EQ(at(0), 2_b);
  EXPECT_EQ(host_[7999], 2_b);
}

TEST_F(TouchedPagesTest, AnOpenRegionOfOneBlockComesWithThePull) {
  std::vector<std::byte> host(5000);
  auto gate = std::make_shared<FakeGate>(host);
  const uint64_t address = kAddress + 200 * kBlock;
  PagesWorker worker(address, host.size(), true);
  Observers observers;
  Pages pages(worker.link, observers, 4 << 20, faults_);
  ASSERT_EQ(add_region(pages, address, host.size(), gate), CUDA_SUCCESS);
  const auto work = [&](std::byte value) {
    pages.begin_work();
    ASSERT_EQ(pages.push(), CUDA_SUCCESS);
    pages.end_work();
    worker.memory()[4000] = value;
  };
  work(1_b);
  ASSERT_EQ(pages.pull(std::nullopt), CUDA_SUCCESS);
  EXPECT_EQ(host[4000], 1_b);
  EXPECT_EQ(gate->count_closed(), 0u);
  work(2_b);
  // The application does not look at it any more.
  worker.result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  EXPECT_EQ(pages.pull(pages.mark()), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(gate->count_closed(), 1u);
  EXPECT_TRUE(gate->failed.empty()) << "nobody has touched it";
  worker.result = CUDA_SUCCESS;
  const size_t before = worker.parts.size();
  work(3_b);
  ASSERT_EQ(pages.pull(pages.mark()), CUDA_SUCCESS);
  EXPECT_EQ(worker.parts.size(), before) << "closed regions stay so";
  ASSERT_EQ(pages.bring(address), CUDA_SUCCESS);
  EXPECT_EQ(host[4000], 3_b);
}

TEST_F(TouchedPagesTest, WhatCannotComeFails) {
  work();
  finish();
  worker_.result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  EXPECT_EQ(pages_.bring(kAddress + 2 * kBlock), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(gate_->failed, std::set<size_t>{2});
  EXPECT_EQ(pages_.bring(kAddress - 1), CUDA_ERROR_NOT_MAPPED);
}

TEST_F(TouchedPagesTest, ItIsKeptOpen) {
  work();
  worker_.memory()[9 * kBlock] = 1_b;
  finish();
  EXPECT_EQ(pages_.keep_all_open(2), CUDA_SUCCESS);
  EXPECT_EQ(gate_->count_closed(), kBlocks) << "of another context";
  EXPECT_TRUE(pages_.any_gated());
  EXPECT_EQ(pages_.keep_all_open(1), CUDA_SUCCESS);
  EXPECT_EQ(gate_->count_closed(), 0u);
  EXPECT_EQ(host_[9 * kBlock], 1_b);
  EXPECT_FALSE(pages_.any_gated());
  EXPECT_TRUE(worker_.is_always_fetched());
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
  EXPECT_EQ(pages_.bring(kAddress), CUDA_ERROR_NOT_MAPPED);
}

}  // namespace
}  // namespace fargpu::client
