#include "client/memory/memory_snapshot.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "client/memory/user_faults.h"
#include "common/host/memory_page.h"

namespace fargpu::client {
namespace {

class MemorySnapshotTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!UserFaults::open_descriptor(UserFaults::Mode::kSnapshots).ok())
      GTEST_SKIP() << "no userfaultfd that protects pages";
  }
  ~MemorySnapshotTest() override {
    for (void* const memory : memories_) ::munmap(memory, kBytes);
  }
  static constexpr size_t kPages = MemorySnapshot::kMostKept + 8, kBytes = kPages * kPageBytes;
  std::byte* memory() {
    void* const made =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(made, MAP_FAILED);
    memories_.push_back(made);
    return static_cast<std::byte*>(made);
  }
  bool add(const std::byte* from, size_t bytes) {
    return snapshot_.add(reinterpret_cast<uint64_t>(from), bytes);
  }
  template <typename Value>
  Value read(const Value* from) {
    Value value = __atomic_load_n(from, __ATOMIC_ACQUIRE);
    snapshot_.restore(reinterpret_cast<uint64_t>(from),
                      std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  std::vector<void*> memories_;
  MemorySnapshot snapshot_;
};

TEST_F(MemorySnapshotTest, WhatWasStoredFirstIsSeenFirst) {
  auto* const one = reinterpret_cast<unsigned*>(memory() + 100);
  auto* const two = reinterpret_cast<unsigned*>(memory() + 5000);
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    for (unsigned number = 1; !is_over; ++number) {
      __atomic_store_n(one, number, __ATOMIC_RELEASE);
      __atomic_store_n(two, number, __ATOMIC_RELEASE);
    }
  });
  // Ranges are made unwritable one after the other: in both orders.
  for (int round = 0; round < 400; ++round) {
    ASSERT_TRUE(add(reinterpret_cast<std::byte*>(round % 2 != 0 ? one : two), 4));
    ASSERT_TRUE(add(reinterpret_cast<std::byte*>(round % 2 != 0 ? two : one), 4));
    ASSERT_TRUE(snapshot_.begin());
    const unsigned second = read(two), first = read(one);
    EXPECT_TRUE(first == second || first == second + 1) << first << " " << second;
    std::this_thread::yield();
    EXPECT_EQ(read(one), first);
    EXPECT_EQ(read(two), second);
    EXPECT_TRUE(snapshot_.is_whole());
    snapshot_.end();
  }
  is_over = true;
  writer.join();
}

TEST_F(MemorySnapshotTest, OwnWritesGoOnAndAreNotSeen) {
  std::byte* const memory = this->memory();
  auto* const fresh = reinterpret_cast<int*>(memory + kPageBytes);  // without memory yet
  auto* const word = reinterpret_cast<int*>(memory + 8);
  *word = 1;
  ASSERT_TRUE(add(memory, 2 * kPageBytes));
  ASSERT_TRUE(snapshot_.begin());
  *word = 2;
  *fresh = 3;
  EXPECT_EQ(read(word), 1);
  EXPECT_EQ(read(fresh), 0);
  EXPECT_TRUE(snapshot_.is_whole());
  snapshot_.end();
  EXPECT_EQ(read(word), 2);
  EXPECT_EQ(*fresh, 3);
}

TEST_F(MemorySnapshotTest, MoreThanCanBeKeptIsNotWhole) {
  std::byte* const memory = this->memory();
  for (const size_t pages : {MemorySnapshot::kMostKept, kPages, size_t{1}}) {
    ASSERT_TRUE(add(memory, kBytes));
    ASSERT_TRUE(snapshot_.begin());
    for (size_t page = 0; page < pages; ++page) memory[page * kPageBytes] = std::byte{1};
    EXPECT_EQ(snapshot_.is_whole(), pages <= MemorySnapshot::kMostKept);
    snapshot_.end();
    EXPECT_FALSE(snapshot_.is_begun());
  }
}

TEST_F(MemorySnapshotTest, AllOrNothing) {
  std::byte* const memory = this->memory();
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::ftruncate(::fileno(file), kPageBytes), 0);
  // A file's memory is not the program's alone.
  void* const mapped =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ::fileno(file), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ASSERT_TRUE(add(memory, kBytes));
  ASSERT_TRUE(add(static_cast<std::byte*>(mapped), kPageBytes));
  EXPECT_FALSE(snapshot_.begin());
  memory[0] = std::byte{1};
  ::munmap(mapped, kPageBytes);
  std::fclose(file);
  ASSERT_TRUE(add(memory, kBytes));
  EXPECT_TRUE(snapshot_.begin());
  snapshot_.end();
}

TEST_F(MemorySnapshotTest, MemoryMayEndMeanwhile) {
  std::byte* const memory = this->memory();
  std::memset(memory, 1, kBytes);
  ASSERT_TRUE(add(memory, kBytes));
  ASSERT_TRUE(snapshot_.begin());
  // What comes instead of a part is no part of it; the rest can be written again.
  ASSERT_EQ(::munmap(memory + kPageBytes, kPageBytes), 0);
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::ftruncate(::fileno(file), kPageBytes), 0);
  ASSERT_NE(::mmap(memory + 3 * kPageBytes, kPageBytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_FIXED, ::fileno(file), 0),
            MAP_FAILED);
  snapshot_.end();
  memory[0] = memory[2 * kPageBytes] = memory[3 * kPageBytes] = memory[kBytes - 1] = std::byte{2};
  std::fclose(file);
}

}  // namespace
}  // namespace fargpu::client
