#include "tests/client/managed_memory_test.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <thread>

#include "client/managed/fault_service.h"
#include "client/managed/managed_variables.h"
#include "common/host/map_exactly.h"
#include "common/host/memory_page.h"

namespace fargpu::client {
namespace {

class EagerManagedMemoryTest : public ManagedMemoryTest {
 protected:
  EagerManagedMemoryTest() { is_eager_ = true; }
};

INSTANTIATE_TEST_SUITE_P(Both, ManagedMemoryTest, kWays, name_of);
INSTANTIATE_TEST_SUITE_P(Both, EagerManagedMemoryTest, kWays, name_of);

TEST_P(ManagedMemoryTest, FreshMemoryIsZeroAndCostsNothing) {
  EXPECT_EQ(read(12345), 0);
  write(100, 1);
  EXPECT_EQ(read(99), 0);
  EXPECT_TRUE(fetched_.empty());
}

TEST_P(ManagedMemoryTest, OnlyWrittenBlocksAreSent) {
  write(10 * kBlock + 5, 7);
  write(90 * kBlock, 0);
  work();
  EXPECT_EQ(pushed_, (std::vector<Travelled>{{10 * kBlock, kBlock}, {90 * kBlock, kBlock}}));
  EXPECT_EQ(worker_[10 * kBlock + 5], std::byte{7});
  EXPECT_FALSE(memory_.any_here());
  pushed_.clear();
  work();
  EXPECT_TRUE(pushed_.empty());
  finish();
  (void)read(10 * kBlock);
  write(11 * kBlock, 1);
  work();
  EXPECT_EQ(pushed_, (std::vector<Travelled>{{11 * kBlock, kBlock}}));
}

TEST_P(ManagedMemoryTest, OnlyExtentsTravel) {
  constexpr uint64_t kAt = uint64_t{12} << 20;
  std::memset(worker_.data() + kAt, 9, 4096);
  const ManagedMemory::Extent first{base() + kAt + 16, 8}, second{base() + kAt + 64, 4};
  ASSERT_EQ(memory_.add({.address = base() + kAt,
                         .bytes = 4096,
                         .mapping = &*chunk_,
                         .context = &context_,
                         .extents = {first}}),
            CUDA_SUCCESS);
  EXPECT_EQ(memory_.first_of(context_), base());
  EXPECT_EQ(read(kAt + 16), 9);
  EXPECT_EQ(read(kAt + 15), 0);
  EXPECT_EQ(fetched_, (std::vector<Travelled>{{kAt + 16, 8}}));
  write(kAt + 16, 1);
  write(kAt + 15, 2);
  work();
  EXPECT_EQ(pushed_, (std::vector<Travelled>{{kAt + 16, 8}}));
  EXPECT_EQ(worker_[kAt + 16], std::byte{1});
  EXPECT_EQ(worker_[kAt + 15], std::byte{9});
  finish();

  // One more while the page is here: what was written is sent, and both come.
  write(kAt + 16, 3);
  fetched_.clear(), pushed_.clear();
  EXPECT_EQ(memory_.add_extent(base() + kAt, second), CUDA_SUCCESS);
  EXPECT_EQ(pushed_, (std::vector<Travelled>{{kAt + 16, 8}}));
  EXPECT_EQ(read(kAt + 64), 9);
  EXPECT_EQ(read(kAt + 16), 3);
  EXPECT_EQ(fetched_, (std::vector<Travelled>{{kAt + 16, 8}, {kAt + 64, 4}}));
  write(kAt + 64, 4);
  pushed_.clear();
  EXPECT_TRUE(memory_.remove_extent(base() + kAt, first));
  work();
  EXPECT_EQ(pushed_, (std::vector<Travelled>{{kAt + 64, 4}}));
  EXPECT_FALSE(memory_.remove_extent(base() + kAt, second));
  EXPECT_TRUE(memory_.remove(base() + kAt));
}

// Of a block what the host has not written is not sent: the device may have changed it meanwhile.
TEST_P(ManagedMemoryTest, ExtentsThatWereOnlyReadAreNotSent) {
  constexpr uint64_t kAt = uint64_t{12} << 20;
  const ManagedMemory::Extent first{base() + kAt, 8}, second{base() + kAt + 8, 8};
  ASSERT_EQ(memory_.add({.address = base() + kAt,
                         .bytes = 3 * kBlock,
                         .mapping = &*chunk_,
                         .context = &context_,
                         .extents = {first}}),
            CUDA_SUCCESS);
  ASSERT_EQ(memory_.add_extent(base() + kAt, second), CUDA_SUCCESS);
  write(kAt, 1);
  worker_[kAt + 8] = std::byte{7};
  work();
  EXPECT_EQ(pushed_, (std::vector<Travelled>{{kAt, 8}}));
  EXPECT_EQ(worker_[kAt + 8], std::byte{7});
  finish();
  // Written back to what it was before the host's last write, which was sent.
  write(kAt, 2);
  work();
  finish();
  write(kAt, 1);
  work();
  EXPECT_EQ(worker_[kAt], std::byte{1});
  finish();

  // Blocks that no extent is left in: the worker may have anything there.
  const ManagedMemory::Extent far{base() + kAt + 2 * kBlock, 8};
  ASSERT_EQ(memory_.add_extent(base() + kAt, far), CUDA_SUCCESS);
  write(kAt + 2 * kBlock, 5);
  ASSERT_TRUE(memory_.remove_extent(base() + kAt, far));
  worker_[kAt + 2 * kBlock] = std::byte{8};
  fetched_.clear(), pushed_.clear();
  work();
  finish();
  read(kAt + 2 * kBlock);
  EXPECT_TRUE(fetched_.empty());
  EXPECT_TRUE(pushed_.empty());
  EXPECT_EQ(worker_[kAt + 2 * kBlock], std::byte{8});
  // Another one there comes as the worker has it.
  ASSERT_EQ(memory_.add_extent(base() + kAt, far), CUDA_SUCCESS);
  EXPECT_EQ(read(kAt + 2 * kBlock), 8);
  EXPECT_TRUE(memory_.remove(base() + kAt));
}

// Pages that nothing lies in, and that nobody takes meanwhile.
class ManagedVariablesTest : public ManagedMemoryTest {
 protected:
  void SetUp() override {
    ManagedMemoryTest::SetUp();
    const auto chunk = DualMapping::make(AddressUse::kManaged, kManagedGranule);
    ASSERT_TRUE(chunk);
    pages_ = chunk->address();
  }
  bool is_free(uint64_t page) {
    void* const at = reinterpret_cast<void*>(pages_ + page * kPageBytes);
    const bool free = map_exactly(at, kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (free) ::munmap(at, kPageBytes);
    return free;
  }
  ManagedVariables::Variable variable(uint64_t offset, uint64_t bytes, uint64_t owner) {
    return {pages_ + offset, bytes, owner, &context_};
  }
  void end(uint64_t owner) { variables_.end_of(owner); }

  uint64_t pages_ = 0;
  FaultService faults_{memory_};
  ManagedVariables variables_{memory_, faults_};
};

INSTANTIATE_TEST_SUITE_P(Both, ManagedVariablesTest, kWays, name_of);

TEST_P(ManagedVariablesTest, SharePagesAndEndOneByOne) {
  EXPECT_EQ(variables_.add(variable(0, 16, 1)), CUDA_SUCCESS);
  EXPECT_EQ(variables_.add(variable(64, 4, 2)), CUDA_SUCCESS);
  EXPECT_EQ(variables_.add(variable(64, 4, 2)), CUDA_SUCCESS);  // known
  EXPECT_EQ(variables_.add(variable(4 * kPageBytes + 8, 8, 3)), CUDA_SUCCESS);
  // From the first page, over free ones, into the last one.
  EXPECT_EQ(variables_.add(variable(4000, 4 * kPageBytes, 4)), CUDA_SUCCESS);
  for (uint64_t page = 0; page < 5; ++page) EXPECT_FALSE(is_free(page)) << page;
  EXPECT_TRUE(is_free(5));
  end(1);
  EXPECT_FALSE(is_free(0));
  end(4);
  EXPECT_FALSE(is_free(0));
  EXPECT_TRUE(is_free(1) && is_free(2));
  EXPECT_FALSE(is_free(4));
  end(2);
  EXPECT_TRUE(is_free(0));
  end(3);
  EXPECT_TRUE(is_free(4));
}

TEST_P(ManagedVariablesTest, AreRefusedWhereSomethingLies) {
  void* const taken = reinterpret_cast<void*>(pages_ + 2 * kPageBytes);
  ASSERT_TRUE(map_exactly(taken, kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT_EQ(variables_.add(variable(100, 16, 1)), CUDA_SUCCESS);
  EXPECT_EQ(variables_.add(variable(200, 3 * kPageBytes, 2)), CUDA_ERROR_NOT_SUPPORTED);
  // Nothing of it is left; the other one is.
  EXPECT_TRUE(is_free(1));
  EXPECT_FALSE(is_free(0));
  end(1);
  EXPECT_TRUE(is_free(0));
  ::munmap(taken, kPageBytes);
}

TEST_P(ManagedVariablesTest, AreRefusedWithoutPagesOfTheirOwn) {
  for (const uint64_t bytes : {uint64_t{0}, UINT64_MAX, ~pages_, ~pages_ + 1})
    EXPECT_EQ(variables_.add(variable(0, bytes, 1)), CUDA_ERROR_NOT_SUPPORTED) << bytes;
  EXPECT_EQ(variables_.add({UINT64_MAX - 8, 8, 1, &context_}), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_TRUE(is_free(0));
}

TEST_P(ManagedMemoryTest, SystemCallsMayUseFreshMemory) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "abc", 3), 3);
  EXPECT_EQ(::read(ends[0], reinterpret_cast<void*>(base() + 5 * kBlock), 3), 3);
  ::close(ends[0]);
  ::close(ends[1]);
  work();
  EXPECT_EQ(pushed_, (std::vector<Travelled>{{5 * kBlock, kBlock}}));
  EXPECT_EQ(worker_[5 * kBlock + 2], std::byte{'c'});
}

TEST_P(ManagedMemoryTest, OnlyTouchedBlocksAreFetched) {
  work();
  finish();
  worker_[3 * kBlock] = std::byte{9};
  EXPECT_EQ(read(3 * kBlock), 9);
  EXPECT_EQ(read(3 * kBlock + 1), 0);
  EXPECT_EQ(fetched_, (std::vector<Travelled>{{3 * kBlock, kBlock}}));
  // It was read, not written.
  work();
  EXPECT_TRUE(pushed_.empty());
}

TEST_P(ManagedMemoryTest, SequentialTouchesFetchMoreAndMore) {
  work();
  finish();
  for (uint64_t at = 0; at < uint64_t{8} << 20; at += 4096) (void)read(at);
  EXPECT_LE(fetched_.size(), 9u);
  uint64_t bytes = 0;
  for (const Travelled& each : fetched_) bytes += each.bytes;
  EXPECT_EQ(bytes, uint64_t{8} << 20);
}

TEST_P(ManagedMemoryTest, AsMuchIsFetchedAtOnceAsTheWireAllows) {
  for (const uint64_t most : {uint64_t{256} << 10, uint64_t{2} << 20}) {
    most_fetched_ = most;
    worker_[0] = std::byte{0};
    work();
    fetched_.clear();
    for (uint64_t offset = 0; offset < uint64_t{8} << 20; offset += 4096) (void)read(offset);
    uint64_t largest = 0, all = 0;
    for (const auto& [offset, bytes] : fetched_) {
      largest = std::max(largest, bytes);
      all += bytes;
    }
    EXPECT_EQ(largest, most);
    EXPECT_EQ(all, uint64_t{8} << 20);
  }
}

TEST_P(ManagedMemoryTest, WhatIsTouchedInTurnIsFetchedAhead) {
  work();
  finish();
  std::fill(worker_.begin(), worker_.end(), std::byte{7});
  uint64_t at = 0;
  for (; wanted_.empty(); at += 4096) ASSERT_EQ(read(at), 7);
  ASSERT_EQ(std::set<uint64_t>(wanted_.begin(), wanted_.end()).size(), 1u);
  const uint64_t ahead = wanted_[0];
  fetched_.clear();
  memory_.bring_ahead(base() + ahead);
  ASSERT_EQ(fetched_.size(), 1u);
  EXPECT_EQ(fetched_[0].offset, ahead);
  const uint64_t end = ahead + fetched_[0].bytes;
  for (; at < end; at += 4096) ASSERT_EQ(read(at), 7);
  EXPECT_EQ(fetched_.size(), 1u);
  EXPECT_EQ(wanted_.back(), end);
  // Work has been submitted since: it is not wanted any more.
  memory_.begin_work();
  memory_.bring_ahead(base() + end);
  memory_.end_work();
  EXPECT_EQ(fetched_.size(), 1u);
  work();
  EXPECT_TRUE(pushed_.empty());
  finish();
  // It is overtaken by work while it comes.
  fetched_.clear(), wanted_.clear();
  for (at = 0; wanted_.empty(); at += 4096) ASSERT_EQ(read(at), 7);
  during_fetch_ = [this] {
    work();
    std::fill(worker_.begin(), worker_.end(), std::byte{8});
    finish();
  };
  memory_.bring_ahead(base() + wanted_[0]);
  EXPECT_EQ(read(wanted_[0]), 8);
}

// Another thread's work found nothing here when it was submitted, a moment before the fetch began,
// and is done when it ends.
TEST_P(ManagedMemoryTest, WhatCameAheadBesideShortWorkIsNotShown) {
  work();
  finish();
  for (uint64_t at = 0; wanted_.empty(); at += 4096) (void)read(at);
  during_fetch_ = [this] {
    memory_.begin_work();
    std::fill(worker_.begin(), worker_.end(), std::byte{8});
    memory_.end_work();
    finish();
  };
  memory_.bring_ahead(base() + wanted_[0]);
  EXPECT_EQ(read(wanted_[0]), 8);
}

TEST_P(ManagedMemoryTest, WhatCameAheadMayBeWritten) {
  work();
  finish();
  uint64_t at = 0;
  for (; wanted_.empty(); at += 4096) write(at, 1);
  memory_.bring_ahead(base() + wanted_[0]);
  const uint64_t end = wanted_[0] + fetched_.back().bytes;
  const size_t fetches = fetched_.size();
  for (; at < end; at += 4096) write(at, 1);
  EXPECT_EQ(fetched_.size(), fetches);
  work();
  for (at = 0; at < end; at += 4096) ASSERT_EQ(worker_[at], std::byte{1}) << at;
  // What was not written was not sent.
  uint64_t sent = 0;
  for (const Travelled& each : pushed_) sent += each.bytes;
  EXPECT_LE(sent, end);
}

TEST_P(ManagedMemoryTest, WorkThatIsSubmittedDuringAFetchIsNotMissed) {
  work();
  finish();
  during_fetch_ = [this] {
    work();
    worker_[0] = std::byte{5};
  };
  EXPECT_EQ(read(0), 5);
  EXPECT_EQ(fetched_.size(), 2u);
}

TEST_P(ManagedMemoryTest, WhatIsFetchedBesideRunningWorkIsFetchedAgain) {
  work();
  EXPECT_EQ(read(0), 0);
  EXPECT_EQ(awaited_, 1);
  worker_[0] = std::byte{3};
  finish();
  EXPECT_EQ(read(0), 3);
  EXPECT_EQ(awaited_, 1);
  // What the application has written stays.
  work();
  write(0, 4);
  worker_[0] = std::byte{9};
  finish();
  EXPECT_EQ(read(0), 4);
}

// Work that was running at the begin of a fetch writes behind what the fetch has read, and a thread
// has waited for it by the fetch's end.
TEST_P(ManagedMemoryTest, WorkThatEndsDuringAFetchIsNotMissed) {
  work();
  during_fetch_ = [this] {
    worker_[0] = std::byte{5};
    finish();
  };
  EXPECT_EQ(read(0), 5);
}

// Natively kernels in any stream see it, on a GPU with concurrent access.
TEST_P(ManagedMemoryTest, MemoryOfAStreamGoesWithTheWorkOfOthersToo) {
  memory_.with(base(), [](ManagedMemory::Allocation& memory) {
    memory.attachment = ManagedMemory::Attachment::kStream;
  });
  write(0, 1);
  work();
  EXPECT_EQ(pushed_.size(), 1u);
  EXPECT_EQ(worker_[0], std::byte{1});
  worker_[0] = std::byte{2};
  // The host does not wait for that work.
  EXPECT_EQ(read(0), 2);
  EXPECT_EQ(awaited_, 0);
  // What the work writes later is seen when it is done.
  worker_[0] = std::byte{3};
  finish();
  EXPECT_EQ(read(0), 3);
  EXPECT_EQ(awaited_, 0);
}

TEST_P(ManagedMemoryTest, AFailedPushKeepsWhatWasWritten) {
  write(0, 6);
  result_ = CUDA_ERROR_DEVICE_UNAVAILABLE;
  memory_.begin_work();
  EXPECT_EQ(memory_.give(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  memory_.end_work();
  result_ = CUDA_SUCCESS;
  EXPECT_EQ(read(0), 6);
  work();
  EXPECT_EQ(worker_[0], std::byte{6});
}

// What a host function wrote may have been taken by another thread's work.
TEST_P(ManagedMemoryTest, PushesOfOtherWorkAreFinishedBehindHostFunctions) {
  write(0, 1);
  work();
  EXPECT_FALSE(memory_.any_here());
  EXPECT_EQ(memory_.give_and_wait(), CUDA_SUCCESS);
  EXPECT_EQ(finished_, 1);
  EXPECT_EQ(memory_.give_and_wait(), CUDA_SUCCESS);
  EXPECT_EQ(finished_, 1);
}

// A system call stands for a thread that writes: it fails where a thread would fault.
TEST_P(ManagedMemoryTest, FreshMemoryCannotBeWrittenWhileItIsGiven) {
  if (GetParam() == Way::kMessages) GTEST_SKIP() << "it waits";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "abc", 3), 3);
  write(0, 1);
  ssize_t got = 0;
  before_push_ = [&] { got = ::read(ends[0], reinterpret_cast<void*>(base() + 5 * kBlock), 3); };
  work();
  EXPECT_EQ(got, -1);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_P(EagerManagedMemoryTest, AllOfItComesWithASynchronisation) {
  work();
  worker_[5 * kBlock] = std::byte{9};
  finish();
  EXPECT_EQ(memory_.touch(base() + 5 * kBlock, true), Touched::kServed);
  EXPECT_EQ(*reinterpret_cast<volatile char*>(base() + 5 * kBlock), 9);
}

// What a fault brings must not replace what another thread has written since a synchronisation.
TEST_P(EagerManagedMemoryTest, AFaultAndASynchronisationDoNotOvertakeEachOther) {
  work();
  std::thread other;
  std::atomic<bool> wrote{false};
  before_fetch_ = [&] {
    other = std::thread([&] {
      finish();
      write(0, 4);
      wrote = true;
    });
    // It waits for this fetch.
    for (int i = 0; i < 50 && !wrote; ++i) ::usleep(1000);
  };
  (void)read(0);
  other.join();
  EXPECT_EQ(read(0), 4);
  work();
  EXPECT_EQ(worker_[0], std::byte{4});
}

TEST_P(ManagedMemoryTest, NeighboursAreApart) {
  ASSERT_EQ(add(uint64_t{8} << 20, 4096), CUDA_SUCCESS);
  write((uint64_t{8} << 20) - 1, 1);
  write(uint64_t{8} << 20, 2);
  work();
  ASSERT_EQ(pushed_.size(), 2u);
  EXPECT_EQ(pushed_[1], (Travelled{uint64_t{8} << 20, 4096}));
  EXPECT_EQ(memory_.touch(base() + (uint64_t{8} << 20) + 4096, false), Touched::kUnknown);
  EXPECT_TRUE(memory_.remove(base()));
  EXPECT_FALSE(memory_.remove(base()));
  EXPECT_EQ(memory_.touch(base(), false), Touched::kUnknown);
}

TEST_P(ManagedMemoryTest, MoreBlocksInTurnThanThereAreMappings) {
  if (GetParam() == Way::kMessages) GTEST_SKIP() << "no mapping is split";
  // Every second block of many allocations: more states than the system has mappings.
  std::list<DualMapping> chunks;
  for (int i = 0; i < 24; ++i) {
    auto made = DualMapping::make(AddressUse::kManaged, uint64_t{256} << 20);
    ASSERT_TRUE(made);
    const DualMapping& chunk = chunks.emplace_back(std::move(*made));
    ASSERT_EQ(memory_.add({.address = chunk.address(),
                           .bytes = chunk.bytes(),
                           .mapping = &chunk,
                           .context = &context_}),
              CUDA_SUCCESS);
  }
  work();
  finish();
  // 98,304 mappings are wanted, 65,530 are what a process usually has.
  for (const DualMapping& chunk : chunks) {
    for (uint64_t at = 0; at < chunk.bytes(); at += 2 * kBlock)
      ASSERT_EQ(memory_.bring(chunk.address() + at, false), CUDA_SUCCESS);
  }
  for (const DualMapping& chunk : chunks) memory_.remove(chunk.address());
}

int open_descriptors() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST(DualMapping, ChunksShareADescriptor) {
  const auto first = DualMapping::make(AddressUse::kManaged, kManagedGranule);
  ASSERT_TRUE(first);
  const int before = open_descriptors();
  std::vector<DualMapping> chunks;
  for (int i = 0; i < 50; ++i) {
    auto chunk = DualMapping::make(AddressUse::kManaged, 2 * kManagedGranule);
    ASSERT_TRUE(chunk);
    std::byte* const begin = chunk->local(chunk->address());
    EXPECT_EQ(*begin, std::byte{0});
    *begin = std::byte{1};
    chunks.push_back(std::move(*chunk));
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(*first->local(first->address()), std::byte{0});
  // What is given back is zero again.
  chunks.clear();
  const auto again = DualMapping::make(AddressUse::kManaged, 100 * kManagedGranule);
  ASSERT_TRUE(again);
  for (uint64_t at = 0; at < again->bytes(); at += kManagedGranule)
    EXPECT_EQ(*again->local(again->address() + at), std::byte{0});
}

// The system would send SIGXFSZ.
TEST(DualMapping, FilesMayNotBeSoLarge) {
  struct rlimit usual = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &usual), 0);
  const struct rlimit small = {1 << 20, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_FALSE(DualMapping::make(AddressUse::kManaged, uint64_t{1} << 35));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &usual), 0);
  EXPECT_TRUE(DualMapping::make(AddressUse::kManaged, uint64_t{1} << 35));
}

}  // namespace
}  // namespace fargpu::client
