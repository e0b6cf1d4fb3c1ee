#include "sim/memory/range_allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace fargpu::sim {
namespace {

TEST(RangeAllocatorTest, AlignsAndRunsOut) {
  RangeAllocator ranges(10, 110);
  EXPECT_EQ(ranges.allocate(20, 16), 16u);
  EXPECT_EQ(ranges.allocate(64, 1), 36u);
  EXPECT_EQ(ranges.allocate(11, 1), std::nullopt);
  EXPECT_EQ(ranges.allocate(10, 1), 100u);
  EXPECT_EQ(ranges.allocate(6, 1), 10u);
  EXPECT_EQ(ranges.allocate(1, 1), std::nullopt);
}

TEST(RangeAllocatorTest, MergesNeighboursWhenFreed) {
  RangeAllocator ranges(0, 96);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(ranges.allocate(32, 1), i * 32);
  ranges.free(0, 32);
  ranges.free(64, 32);
  EXPECT_EQ(ranges.allocate(96, 1), std::nullopt);
  ranges.free(32, 32);
  EXPECT_EQ(ranges.allocate(96, 1), 0u);
}

TEST(RangeAllocatorTest, AllocateAtTakesExactlyWhatIsFree) {
  RangeAllocator ranges(0, 100);
  EXPECT_TRUE(ranges.allocate_at(40, 20));
  EXPECT_FALSE(ranges.allocate_at(50, 20));
  EXPECT_FALSE(ranges.allocate_at(30, 20));
  EXPECT_FALSE(ranges.allocate_at(90, 20));
  EXPECT_TRUE(ranges.allocate_at(60, 40));
  EXPECT_EQ(ranges.allocate(40, 1), 0u);
}

TEST(RangeAllocatorTest, RandomUseNeverOverlapsAndEndsWhereItBegan) {
  constexpr uint64_t kEnd = 1 << 16;
  RangeAllocator ranges(0, kEnd);
  std::mt19937 random(7);
  std::vector<bool> taken(kEnd);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  for (int round = 0; round < 5000; ++round) {
    if (random() % 3 != 0 || live.empty()) {
      const uint64_t bytes = random() % 400 + 1, alignment = uint64_t{1} << (random() % 8);
      const auto at = ranges.allocate(bytes, alignment);
      if (!at) continue;
      ASSERT_EQ(*at % alignment, 0u);
      for (uint64_t i = *at; i < *at + bytes; ++i) {
        ASSERT_FALSE(taken[i]);
        taken[i] = true;
      }
      live.emplace_back(*at, bytes);
    } else {
      const size_t which = random() % live.size();
      for (uint64_t i = 0; i < live[which].second; ++i) taken[live[which].first + i] = false;
      ranges.free(live[which].first, live[which].second);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  for (const auto& [at, bytes] : live) ranges.free(at, bytes);
  EXPECT_EQ(ranges.allocate(kEnd, 1), 0u);
}

}  // namespace
}  // namespace fargpu::sim
