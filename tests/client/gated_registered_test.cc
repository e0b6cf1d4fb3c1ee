// Registered memory whose pages are moved away: what the system does with it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "client/hostmem/block_states.h"
#include "client/memory/gated_host.h"

namespace fargpu::client {
namespace {

constexpr size_t kPage = 4096, kBlock = BlockStates::kBlock, kPages = 256;
// In the first page and in the last one are bytes of others.
constexpr size_t kHead = kPage - 100, kBytes = kHead + (kPages - 2) * kPage + 50;

class RegisteredGateTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer does not see that a fault orders two threads";
#endif
    if (const Status status = UserFaults::probe(UserFaults::Mode::kMoves); !status.ok())
      GTEST_SKIP() << "the system does not move pages for this process: " << status.message();
    // It and its threads live as long as the process.
    host_ = new GatedHost(*(observers_ = new Observers));
    pages_ = map_pages();
    memory_ = pages_ + 100;
    for (size_t page = 0; page < kPages; ++page) pages_[page * kPage + 200] = value_of(page);
    host_->add(address(), kBytes);
    gate_ = host_->gate(address());
    ASSERT_NE(gate_, nullptr);
    EXPECT_EQ(gate_->head(), kHead);
    EXPECT_EQ(gate_->tail(), 50u);
    std::thread([host = host_] {
      for (;;) {
        host->moves().wait(std::nullopt);
        host->serve_reports();
      }
    }).detach();
    std::thread([gate = gate_, begin = address() + kHead, host = host_, served = served_] {
      for (;; std::this_thread::sleep_for(std::chrono::microseconds(100)))
        for (GatedHost::Wanted wanted; host->next(&wanted);) {
          ++*served;
          const size_t block = wanted.all ? 0 : (wanted.address - begin) / kBlock * kBlock;
          gate->open(kHead + block, wanted.all ? kBytes : kBlock);
        }
    }).detach();
    ASSERT_TRUE(gate_->watch());
  }
  void TearDown() override {
    if (gate_ == nullptr) return;
    gate_->unwatch();
    host_->remove(address());
    EXPECT_FALSE(observers_->any(Observers::kGateableMemory | Observers::kGatedMemory));
  }
  static char* map_pages() {
    void* const pages =
        ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(pages, MAP_FAILED);
    return static_cast<char*>(pages);
  }
  static char value_of(size_t page) { return static_cast<char>(page % 100 + 1); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }
  // All that can be closed, in bytes.
  size_t close() {
    size_t closed = 0;
    for (size_t at = kHead; at < kBytes - 50;) {
      const size_t bytes = gate_->close(at, kBytes - at);
      closed += bytes;
      at += bytes != 0 ? bytes : kBlock;
    }
    return closed;
  }
  void expect_all(const char* pages) {
    for (size_t page = 0; page < kPages; ++page)
      ASSERT_EQ(const_cast<const volatile char*>(pages)[page * kPage + 200], value_of(page))
          << page;
  }

  Observers* observers_ = nullptr;
  GatedHost* host_ = nullptr;
  char *pages_ = nullptr, *memory_ = nullptr;
  std::shared_ptr<PageGate> gate_;
  std::atomic<int>* served_ = new std::atomic<int>{0};
};

TEST_F(RegisteredGateTest, WhatIsClosedIsServedAndKeepsItsContents) {
  EXPECT_EQ(close(), (kPages - 2) * kPage);
  EXPECT_EQ(gate_->local()[kHead + 200], std::byte{2}) << "the second page";
  gate_->local()[kHead + 300] = std::byte{77};
  EXPECT_EQ(pages_[0], 0);
  EXPECT_EQ(*served_, 0) << "the first page has bytes of others";
  EXPECT_EQ(pages_[kPage + 300], 77);
  EXPECT_EQ(*served_, 1);
  expect_all(pages_);
  EXPECT_EQ(close(), (kPages - 2) * kPage);
  expect_all(pages_);
}

TEST_F(RegisteredGateTest, NoWriteOfAThreadIsLost) {
  std::atomic<bool> over{false};
  long count = 0;
  std::thread writer([&] {
    for (; !over; ++count)
      ++std::atomic_ref(*reinterpret_cast<int*>(pages_ + (1 + count % 200) * kPage));
  });
  for (int i = 0; i < 200; ++i) close();
  over = true;
  writer.join();
  long total = 0;
  for (size_t page = 1; page <= 200; ++page)
    total += *reinterpret_cast<int*>(pages_ + page * kPage);
  EXPECT_EQ(total, count);
}

TEST_F(RegisteredGateTest, WhatAChildSharesStays) {
  host_->show_to_child(true);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::close(ends[1]);
    (void)!::read(ends[0], &byte, 1);
    _exit(pages_[5 * kPage + 200] == value_of(5) ? 0 : 1);
  }
  host_->show_to_child(false);
  pages_[kPage] = 1;  // a copy of its own
  EXPECT_EQ(close(), 0u) << "each block has other pages, too";
  ::close(ends[0]);
  ::close(ends[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  expect_all(pages_);
  EXPECT_EQ(*served_, 0);
}

TEST_F(RegisteredGateTest, AChildMadePastForkFaults) {
  close();
  const auto child =
      static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit
    _exit(static_cast<volatile char*>(pages_)[5 * kPage + 200] == 0 ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  expect_all(pages_);
}

TEST_F(RegisteredGateTest, PagesThatTheSystemUsesStay) {
  // A pipe that has them by reference, as a read past the caches would.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  struct iovec part = {pages_ + 5 * kPage, kPage};
  ASSERT_EQ(::vmsplice(ends[1], &part, 1, 0), static_cast<ssize_t>(kPage));
  close();
  pages_[5 * kPage] = 99;
  std::vector<char> read(kPage);
  ASSERT_EQ(::read(ends[0], read.data(), kPage), static_cast<ssize_t>(kPage));
  EXPECT_EQ(read[0], 99) << "it is the same page";
  ::close(ends[0]);
  ::close(ends[1]);
  expect_all(pages_);
}

TEST_F(RegisteredGateTest, WhatIsMovedByTheApplicationIsServedThere) {
  close();
  constexpr size_t kInner = (kPages - 2) * kPage;
  void* const there = ::mremap(pages_ + kPage, kInner, 2 * kInner, MREMAP_MAYMOVE);
  ASSERT_NE(there, MAP_FAILED);
  char* const moved = static_cast<char*>(there);
  ASSERT_NE(moved, pages_ + kPage);
  const auto check = [&] {
    for (size_t page = 1; page < kPages - 1; ++page)
      ASSERT_EQ(static_cast<volatile char*>(moved)[(page - 1) * kPage + 200], value_of(page));
  };
  check();
  EXPECT_EQ(moved[2 * kInner - 1], 0);
  EXPECT_EQ(close(), 0u);
  gate_->unwatch();
  check();
}

TEST_F(RegisteredGateTest, WhatIsEmptiedIsEmpty) {
  close();
  ASSERT_EQ(::madvise(pages_ + 10 * kPage, 10 * kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(pages_[10 * kPage + 200], 0);
  EXPECT_EQ(pages_[19 * kPage + 200], 0);
  EXPECT_EQ(pages_[9 * kPage + 200], value_of(9));
  EXPECT_EQ(pages_[20 * kPage + 200], value_of(20));
  ASSERT_EQ(::madvise(pages_ + 10 * kPage, 10 * kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(pages_[10 * kPage + 200], 0) << "while it is open";
}

TEST_F(RegisteredGateTest, WhatIsUnmappedIsGoneAndOtherMemoryIsLeftAlone) {
  close();
  // In one call, so that no other thread's memory comes in between.
  ASSERT_NE(::mmap(pages_ + 64 * kPage, 64 * kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  pages_[64 * kPage] = 5;
  gate_->open(kHead, kBytes - kHead);
  EXPECT_EQ(close(), 0u);
  EXPECT_EQ(pages_[200], value_of(0));
  gate_->unwatch();
  EXPECT_EQ(pages_[64 * kPage], 5);
  EXPECT_EQ(pages_[64 * kPage + 200], 0);
  EXPECT_EQ(pages_[63 * kPage + 200], value_of(63));
  EXPECT_EQ(pages_[200 * kPage + 200], value_of(200));
}

TEST_F(RegisteredGateTest, ProtectedMemoryIsOpenedAndStaysOpen) {
  close();
  ASSERT_EQ(::mprotect(pages_ + kPage, 96 * kPage, PROT_READ), 0);
  expect_all(pages_);
  EXPECT_EQ(close(), (kPages - 2 - 96) * kPage);
  ASSERT_EQ(::mprotect(pages_, kPages * kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(close(), (kPages - 2) * kPage);
  expect_all(pages_);
}

TEST_F(RegisteredGateTest, LockedMemoryStaysOpen) {
  close();
  // Not mlock(), which sanitizers ignore.
  if (::syscall(SYS_mlock, pages_, kPages * kPage) != 0)
    GTEST_SKIP() << "this process may lock nothing";
  expect_all(pages_);
  EXPECT_EQ(close(), 0u);
}

TEST_F(RegisteredGateTest, AfterwardsItIsOrdinaryMemory) {
  close();
  gate_->unwatch();
  EXPECT_EQ(*served_, 0);
  expect_all(pages_);
  ASSERT_EQ(::madvise(pages_ + kPage, kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(pages_[kPage + 200], 0);
  EXPECT_EQ(*served_, 0);
  const pid_t child = ::fork();
  if (child == 0) _exit(pages_[5 * kPage + 200] == value_of(5) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(RegisteredGateTest, KeptMemoryHasNoGate) {
  EXPECT_TRUE(host_->keep(address() + kBytes, 10).empty());
  EXPECT_TRUE(host_->keep(address() - 10, 10).empty());
  EXPECT_EQ(host_->keep(address() - 10, 11), std::vector<uint64_t>{address()});
  EXPECT_EQ(host_->gate(address()), nullptr);
}

TEST_F(RegisteredGateTest, OnlyMemoryOfItsOwn) {
  const auto has_gate = [&](void* memory, size_t bytes) {
    const auto address = reinterpret_cast<uint64_t>(memory);
    host_->add(address, bytes);
    const bool has = host_->gate(address) != nullptr;
    host_->remove(address);
    return has;
  };
  char* const plain = map_pages();
  EXPECT_TRUE(has_gate(plain, kPages * kPage));
  EXPECT_FALSE(has_gate(plain, GatedHost::kLeast - 1));
  ASSERT_EQ(::mprotect(plain, kPage, PROT_NONE), 0);
  EXPECT_FALSE(has_gate(plain, kPages * kPage));
  alignas(kPage) char on_stack[2 * GatedHost::kLeast];
  EXPECT_FALSE(has_gate(on_stack, sizeof on_stack));
  void* const heap = ::sbrk(2 * GatedHost::kLeast);
  EXPECT_FALSE(has_gate(heap, 2 * GatedHost::kLeast));
  const int file = ::memfd_create("moved_host", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, kPages * kPage), 0);
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    void* const memory = ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, flags, file, 0);
    EXPECT_FALSE(has_gate(memory, kPages * kPage));
  }
  ::close(file);
}

}  // namespace
}  // namespace fargpu::client
