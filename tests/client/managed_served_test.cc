// Managed memory whose faults are messages (userfaultfd).
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include "tests/client/managed_memory_test.h"

namespace fargpu::client {
namespace {

// Accesses just happen, also in the system.
class ServedMemoryTest : public ManagedMemoryTest {
 protected:
  void SetUp() override {
    ManagedMemoryTest::SetUp();
    ASSERT_EQ(::pipe(ends_), 0);
  }
  void TearDown() override {
    ManagedMemoryTest::TearDown();
    for (const int end : ends_) ::close(end);
  }
  volatile char& at(uint64_t offset) { return *reinterpret_cast<volatile char*>(base() + offset); }
  bool read_from_pipe(uint64_t offset, const char* text) {
    const auto bytes = static_cast<ssize_t>(std::strlen(text));
    return ::write(ends_[1], text, static_cast<size_t>(bytes)) == bytes &&
           ::read(ends_[0], reinterpret_cast<void*>(base() + offset), static_cast<size_t>(bytes)) ==
               bytes;
  }
  int ends_[2] = {-1, -1};
};
INSTANTIATE_TEST_SUITE_P(Alone, ServedMemoryTest, testing::Values(Way::kMessages), name_of);

TEST_P(ServedMemoryTest, AccessesWaitForWhatIsAway) {
  work();
  finish();
  worker_[3 * kBlock + 7] = std::byte{9};
  EXPECT_EQ(at(3 * kBlock + 7), 9);
  EXPECT_EQ(at(3 * kBlock + 8), 0);
  EXPECT_EQ(served_, 1);
  // It was read, not written.
  work();
  EXPECT_TRUE(pushed_.empty());
  finish();
  at(3 * kBlock + 8) = 4;
  EXPECT_EQ(at(3 * kBlock + 7), 9);
  work();
  EXPECT_EQ(pushed_, (std::vector<Travelled>{{3 * kBlock, kBlock}}));
  EXPECT_EQ(worker_[3 * kBlock + 8], std::byte{4});
}

TEST_P(ServedMemoryTest, WritesToWhatWasReadAreFound) {
  work();
  finish();
  for (uint64_t offset = 0; offset < 64 * kBlock; offset += 4096) EXPECT_EQ(at(offset), 0);
  const int reads = served_;
  at(40 * kBlock + 4096) = 1;
  EXPECT_EQ(served_, reads + 1);
  at(40 * kBlock + 8192) = 2;
  EXPECT_EQ(served_, reads + 1) << "the block is open";
  work();
  EXPECT_EQ(pushed_, (std::vector<Travelled>{{40 * kBlock, kBlock}}));
  EXPECT_EQ(worker_[40 * kBlock + 4096], std::byte{1});
  EXPECT_EQ(worker_[40 * kBlock + 8192], std::byte{2});
}

TEST_P(ServedMemoryTest, SystemCallsWaitToo) {
  at(0) = 'x';
  work();
  finish();
  worker_[1] = std::byte{'y'};
  char got[2] = {};
  ASSERT_EQ(::write(ends_[1], reinterpret_cast<void*>(base()), 2), 2);
  ASSERT_EQ(::read(ends_[0], got, 2), 2);
  EXPECT_EQ(std::string_view(got, 2), "xy");
  // Into what was only read so far, what is away, and from one into the other.
  EXPECT_TRUE(read_from_pipe(100, "abc"));
  EXPECT_TRUE(read_from_pipe(9 * kBlock, "def"));
  EXPECT_TRUE(read_from_pipe(kBlock - 1, "ghi"));
  work();
  EXPECT_EQ(worker_[102], std::byte{'c'});
  EXPECT_EQ(worker_[9 * kBlock + 2], std::byte{'f'});
  EXPECT_EQ(worker_[kBlock - 1], std::byte{'g'});
  EXPECT_EQ(worker_[kBlock + 1], std::byte{'i'});
  EXPECT_EQ(worker_[1], std::byte{'y'});
}

// What is written while memory is given is either sent, or there afterwards and sent the next time.
TEST_P(ServedMemoryTest, WritesDuringAPushAreSentLater) {
  write(0, 1);
  std::thread other;
  std::atomic<bool> wrote{false};
  before_push_ = [&] {
    other = std::thread([&] {
      at(1) = 2;
      wrote = true;
    });
    ::usleep(20'000);
    EXPECT_FALSE(wrote);
  };
  work();
  other.join();
  EXPECT_EQ(worker_[0], std::byte{1});
  EXPECT_EQ(worker_[1], std::byte{0});
  work();
  EXPECT_EQ(worker_[0], std::byte{1});
  EXPECT_EQ(worker_[1], std::byte{2});
}

TEST_P(ServedMemoryTest, WhatCannotComeFailsUntilTheNextWork) {
  work();
  finish();
  result_ = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(::write(ends_[1], reinterpret_cast<void*>(base() + 5 * kBlock), 1), -1);
  EXPECT_EQ(errno, EFAULT);
  result_ = CUDA_SUCCESS;
  EXPECT_TRUE(memory_.any_here());
  work();
  EXPECT_FALSE(memory_.any_here());
  finish();
  worker_[5 * kBlock] = std::byte{3};
  EXPECT_EQ(at(5 * kBlock), 3);
}

TEST_P(ServedMemoryTest, MemoryThatIsFreedFaultsForGoodAndIsFreshAgain) {
  at(0) = 1;
  work();
  finish();
  EXPECT_EQ(at(0), 1);
  ASSERT_TRUE(memory_.remove(base()));
  EXPECT_EQ(::write(ends_[1], reinterpret_cast<void*>(base()), 1), -1);
  EXPECT_EQ(::write(ends_[1], reinterpret_cast<void*>(base() + 9 * kBlock), 1), -1);
  chunk_->clear(base(), uint64_t{8} << 20);
  ASSERT_EQ(add(0, uint64_t{8} << 20), CUDA_SUCCESS);
  const int before = served_;
  EXPECT_EQ(at(0), 0);
  at(9 * kBlock) = 5;
  EXPECT_EQ(served_, before) << "fresh memory asks nobody";
  work();
  EXPECT_EQ(worker_[9 * kBlock], std::byte{5});
}

// Pages of variables may have bytes that never came.
TEST_P(ServedMemoryTest, PagesWithoutContentsAreServed) {
  constexpr uint64_t kAt = uint64_t{12} << 20;
  ASSERT_EQ(memory_.add({.address = base() + kAt,
                         .bytes = 4 * 4096,
                         .mapping = &*chunk_,
                         .context = &context_,
                         .extents = {{base() + kAt + 2 * 4096, 8}}}),
            CUDA_SUCCESS);
  added_.push_back(base() + kAt);
  worker_[kAt + 2 * 4096] = std::byte{6};
  EXPECT_EQ(at(kAt), 0);
  EXPECT_EQ(at(kAt + 2 * 4096), 6);
  EXPECT_EQ(at(kAt + 3 * 4096), 0);
  at(kAt + 2 * 4096 + 1) = 7;
  work();
  EXPECT_EQ(worker_[kAt + 2 * 4096 + 1], std::byte{7});
}

TEST_P(ServedMemoryTest, ThreadsAtOnceSeeWhatTheWorkerHas) {
  for (int round = 1; round <= 20; ++round) {
    // While work runs a message of an access that is long over may still come.
    memory_.begin_work();
    ASSERT_EQ(memory_.give(), CUDA_SUCCESS);
    std::fill(worker_.begin(), worker_.begin() + (8 << 20), std::byte(round));
    memory_.end_work();
    finish();
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (uint64_t number = 0; number < 4; ++number) {
      threads.emplace_back([&, number] {
        for (uint64_t offset = number * 1024; offset < 8 << 20; offset += 4096)
          wrong += at(offset) != round;
        for (uint64_t offset = number * 4096; offset < 8 << 20; offset += 16384)
          at(offset + 1) = static_cast<char>(round + 100);
      });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(wrong, 0);
    work();
    for (uint64_t offset = 0; offset < 8 << 20; offset += 4096)
      ASSERT_EQ(worker_[offset + 1], std::byte(round + 100)) << offset;
    finish();
  }
}

// An access may have been served together with another one, and be over when its turn comes.
TEST_P(ServedMemoryTest, AWriteThatIsLongOverChangesNothing) {
  work();
  finish();
  at(0) = 1;
  const uint64_t heard = memory_.gives();
  memory_.begin_work();
  ASSERT_EQ(memory_.give(), CUDA_SUCCESS);
  memory_.end_work();
  ASSERT_EQ(memory_.touch(base(), true, heard), Touched::kNeedsService);
  ASSERT_EQ(memory_.bring(base(), true, heard), CUDA_SUCCESS);
  ASSERT_EQ(memory_.touch(base(), true, heard), Touched::kServed);
  worker_[0] = std::byte{2};
  finish();
  EXPECT_EQ(at(0), 2);
  pushed_.clear();
  work();
  EXPECT_TRUE(pushed_.empty());
}

// It was left by a jump; then its thread submitted work, while it was being served.
TEST_P(ServedMemoryTest, AWriteThatWasLeftDoesNotReplaceWhatWorkWrites) {
  work();
  finish();
  const uint64_t heard = memory_.gives();
  during_fetch_ = [this] { work(); };
  ASSERT_EQ(memory_.bring(base(), true, heard), CUDA_SUCCESS);
  worker_[0] = std::byte{2};
  finish();
  work();
  EXPECT_TRUE(pushed_.empty());
  finish();
  EXPECT_EQ(at(0), 2);
}

TEST_P(ServedMemoryTest, AForkedChildFaults) {
  work();
  finish();
  EXPECT_EQ(at(0), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit
    _exit(at(0) + at(5 * kBlock));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
}

// What is fetched in turn is large, and shown in portions.
class PortionsTest : public ManagedMemoryTest {
 protected:
  static constexpr uint64_t kPortion = 2 << 20, kPage = 4096;

  ManagedMemory::AskShow ask_show() override {
    return [this] { ++asked_; };
  }
  // The worker has `value` everywhere, and more than a portion has come, of which the first page is
  // read.
  void touch_large_run(char value) {
    work();
    finish();
    std::fill(worker_.begin(), worker_.end(), static_cast<std::byte>(value));
    fetched_.clear();
    wanted_.clear();
    uint64_t at = 0;
    while (fetched_.empty() || fetched_.back().bytes <= kPortion) {
      const size_t before = fetched_.size();
      for (; wanted_.empty(); at += kPage) ASSERT_EQ(get(at), value);
      memory_.bring_ahead(base() + std::exchange(wanted_, {}).back());
      ASSERT_GT(fetched_.size(), before);
    }
    run_ = fetched_.back();
    asked_ = 0;
    served_ = 0;
    ASSERT_EQ(get(run_.offset), value);
  }
  char get(uint64_t offset) { return *reinterpret_cast<volatile char*>(base() + offset); }
  void expect_run(char value) {
    for (uint64_t at = run_.offset; at < run_.offset + run_.bytes; at += kPage)
      ASSERT_EQ(get(at), value) << at;
  }

  Travelled run_{};
  std::atomic<int> asked_{0};
};

INSTANTIATE_TEST_SUITE_P(Alone, PortionsTest, testing::Values(Way::kMessages), name_of);

TEST_P(PortionsTest, TheRestIsShownWithoutAnAccess) {
  touch_large_run(7);
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(served_, 1);
  uint64_t portions = 1;
  while (memory_.show_on()) ++portions;
  EXPECT_EQ(portions, (run_.bytes + kPortion - 1) / kPortion);
  expect_run(7);
  EXPECT_EQ(served_, 1) << "nothing waited";
}

TEST_P(PortionsTest, AnAccessThatIsFasterIsServedAPortion) {
  touch_large_run(7);
  expect_run(7);
  EXPECT_EQ(static_cast<uint64_t>(served_), (run_.bytes + kPortion - 1) / kPortion);
  EXPECT_FALSE(memory_.show_on());
}

TEST_P(PortionsTest, AccessesInAnyOrderSeeAllOfIt) {
  touch_large_run(7);
  const uint64_t last = run_.offset + run_.bytes - kPage;
  EXPECT_EQ(get(last), 7);
  EXPECT_EQ(get(last - 3 * kBlock), 7);
  EXPECT_TRUE(memory_.show_on());
  expect_run(7);
  while (memory_.show_on()) {
  }
  expect_run(7);
}

TEST_P(PortionsTest, WhatWentAwayIsNotShown) {
  touch_large_run(7);
  work();
  std::fill(worker_.begin(), worker_.end(), std::byte{8});
  finish();
  EXPECT_FALSE(memory_.show_on());
  expect_run(8);
  touch_large_run(9);
  while (memory_.show_on()) {
  }
  expect_run(9);
}

TEST_P(PortionsTest, WhatIsWrittenInTheRestStaysWritten) {
  touch_large_run(7);
  const uint64_t place = run_.offset + kPortion + 5 * kBlock;
  *reinterpret_cast<volatile char*>(base() + place) = 1;
  while (memory_.show_on()) {
  }
  EXPECT_EQ(get(place), 1);
  EXPECT_EQ(get(place + kPage), 7);
  *reinterpret_cast<volatile char*>(base() + place + 1) = 2;
  pushed_.clear();
  work();
  ASSERT_EQ(pushed_.size(), 1u);
  EXPECT_LE(pushed_[0].offset, place);
  EXPECT_GT(pushed_[0].offset + pushed_[0].bytes, place);
  EXPECT_EQ(*at_worker(base() + place), std::byte{1});
  EXPECT_EQ(*at_worker(base() + place + 1), std::byte{2});
  EXPECT_EQ(*at_worker(base() + place + 2), std::byte{7});
}

TEST_P(ServedMemoryTest, LargeAllocationsStillComeInSmallPieces) {
  auto chunk = DualMapping::make(AddressUse::kManaged, uint64_t{2} << 30);
  ASSERT_TRUE(chunk);
  ASSERT_EQ(memory_.add({.address = chunk->address(),
                         .bytes = chunk->bytes(),
                         .mapping = &*chunk,
                         .context = &context_}),
            CUDA_SUCCESS);
  work();
  finish();
  fetched_.clear();
  EXPECT_EQ(*reinterpret_cast<volatile char*>(chunk->address() + (uint64_t{1} << 30)), 0);
  ASSERT_EQ(fetched_.size(), 1u);
  EXPECT_EQ(fetched_[0].bytes, kBlock);
  memory_.remove(chunk->address());
}

}  // namespace
}  // namespace fargpu::client
