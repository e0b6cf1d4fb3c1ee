// Pinned memory whose faults this process serves: what the system does with it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "client/memory/gated_host.h"
#include "client/memory/reserve.h"

namespace fargpu::client {
namespace {

constexpr size_t kPage = 4096, kBytes = 64 * kPage - 100;

class PinnedGateTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer does not see that a fault orders two threads";
#endif
    if (const Status status = UserFaults::probe(); !status.ok())
      GTEST_SKIP() << "the system does not let this process serve faults: " << status.message();
    // It and its thread live as long as the process.
    host_ = new GatedHost(observers_);
    memory_ = static_cast<std::byte*>(host_->allocate(kBytes));
    ASSERT_NE(memory_, nullptr);
    std::thread([this, &faults = host_->accesses()] {
      UserFaults::Accesses found;
      for (;;) {
        faults.wait(std::nullopt);
        for (const UserFaults::Access& access : faults.take(found)) serve(access.address);
      }
    }).detach();
    gate_ = host_->gate(address());
    ASSERT_NE(gate_, nullptr);
    ASSERT_TRUE(gate_->watch());
  }
  void TearDown() override {
    if (memory_ == nullptr) return;
    gate_->unwatch();
    gate_.reset();
    EXPECT_TRUE(host_->remove(address()));
    EXPECT_FALSE(observers_.any(Observers::kGateableMemory | Observers::kGatedMemory));
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }
  std::byte& at(size_t offset) {
    touch_ = memory_ + offset;
    return *touch_;
  }
  void serve(uint64_t at) {
    ++faults_;
    const size_t offset = (at - address()) / kPage * kPage;
    if (fails_) return gate_->fail(offset, kPage);
    gate_->local()[offset] = std::byte{9};
    gate_->open(offset, kPage);
  }

  Observers& observers_ = *new Observers;
  GatedHost* host_ = nullptr;
  std::byte* memory_ = nullptr;
  std::byte* volatile touch_ = nullptr;
  std::shared_ptr<PageGate> gate_;
  std::atomic<int> faults_{0};
  std::atomic<bool> fails_{false};
};

TEST_F(PinnedGateTest, WhatIsClosedIsServedAndKeepsItsContents) {
  at(3 * kPage) = std::byte{1};
  at(3 * kPage + 1) = std::byte{2};
  EXPECT_EQ(faults_, 0);
  gate_->close(0, kBytes);
  EXPECT_EQ(at(3 * kPage), std::byte{9});
  EXPECT_EQ(at(3 * kPage + 1), std::byte{2});
  EXPECT_EQ(faults_, 1);
  EXPECT_EQ(at(kBytes - 1), std::byte{0});
  EXPECT_EQ(faults_, 2);
}

TEST_F(PinnedGateTest, SystemCallsWaitLikeEverybodyElse) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  gate_->close(0, kBytes);
  ASSERT_EQ(::write(ends[1], memory_ + 5 * kPage, 1), 1);
  ASSERT_EQ(::read(ends[0], memory_ + 7 * kPage + 1, 1), 1);
  EXPECT_EQ(faults_, 2);
  EXPECT_EQ(at(7 * kPage), std::byte{9});
  EXPECT_EQ(at(7 * kPage + 1), std::byte{9});
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(PinnedGateTest, ManyPagesAreOpenedAtOnceAlsoWhereSomeAreOpen) {
  gate_->close(0, kBytes);
  EXPECT_EQ(at(10 * kPage), std::byte{9});
  gate_->open(0, kBytes);
  for (size_t page = 0; page < 64; ++page)
    EXPECT_EQ(at(page * kPage), std::byte{page == 10 ? uint8_t{9} : uint8_t{0}});
  EXPECT_EQ(faults_, 1);
}

TEST_F(PinnedGateTest, APageThatWasGivenUpKeepsNoOtherClosed) {
  ASSERT_EQ(::madvise(memory_ + 3 * kPage, kPage, MADV_REMOVE), 0);
  gate_->close(0, kBytes);
  gate_->open(0, kBytes);
  EXPECT_EQ(at(3 * kPage), std::byte{0});
  EXPECT_EQ(at(4 * kPage), std::byte{0});
  EXPECT_EQ(faults_, 0);
}

TEST_F(PinnedGateTest, WhatFailsEndsTheProgramAndNoSystemCall) {
  gate_->close(0, kBytes);
  fails_ = true;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(::write(ends[1], memory_, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(PinnedGateTest, LockedMemoryIsClosedLikeAnyOther) {
  if (::mlock(memory_, kPage) != 0) GTEST_SKIP() << "this process may lock nothing";
  gate_->close(0, kBytes);
  EXPECT_EQ(at(0), std::byte{9});
  EXPECT_EQ(faults_, 1);
}

TEST_F(PinnedGateTest, AForkedChildFaults) {
  at(0) = std::byte{5};
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit
    _exit(at(0) == std::byte{5} ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_EQ(at(0), std::byte{5});
}

TEST_F(PinnedGateTest, SoManyThatTheProcessKeepsMappings) {
  const auto allocate = [&] { return host_->allocate(1); };
  std::vector<void*> more;
  for (size_t i = 1; i < GatedHost::kMostPinned; ++i) more.push_back(allocate());
  EXPECT_NE(more.back(), nullptr);
  EXPECT_EQ(allocate(), nullptr);
  for (void* const memory : more) EXPECT_TRUE(host_->remove(reinterpret_cast<uint64_t>(memory)));
  void* const again = allocate();
  EXPECT_NE(again, nullptr);
  EXPECT_TRUE(host_->remove(reinterpret_cast<uint64_t>(again)));
}

TEST_F(PinnedGateTest, KeptMemoryHasNoGate) {
  const std::vector<uint64_t> all{address()};
  EXPECT_TRUE(host_->keep(address() + kBytes, 10).empty());
  EXPECT_EQ(host_->keep(address() + 5, 1), all);
  EXPECT_EQ(host_->gate(address()), nullptr);
  EXPECT_EQ(host_->keep(address(), 1), all) << "another thread may be about to open it";
  gate_->unwatch();
  EXPECT_TRUE(host_->keep(address(), 1).empty());
  EXPECT_FALSE(gate_->watch());
}

TEST_F(PinnedGateTest, ItsAddressesComeAgainUnlessTheyAreRetired) {
  void* const first = host_->allocate(1);
  EXPECT_TRUE(host_->remove(reinterpret_cast<uint64_t>(first)));
  void* const second = host_->allocate(1);
  EXPECT_EQ(second, first);
  retire_addresses(second);
  EXPECT_TRUE(host_->remove(reinterpret_cast<uint64_t>(second)));
  void* const third = host_->allocate(1);
  EXPECT_NE(third, second);
  EXPECT_TRUE(host_->remove(reinterpret_cast<uint64_t>(third)));
}

}  // namespace
}  // namespace fargpu::client
