#include "client/hostmem/block_list.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace fargpu::client {
namespace {

constexpr size_t kGranule = BlockList::kGranule;

TEST(BlockListTest, GivesAlignedBlocksUntilItIsFull) {
  BlockList blocks(4 * kGranule);
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ(blocks.take(1), 0u);
  EXPECT_EQ(blocks.take(kGranule + 1), kGranule);
  EXPECT_EQ(blocks.take(kGranule + 1), std::nullopt);
  EXPECT_EQ(blocks.take(kGranule), 3 * kGranule);
  EXPECT_EQ(blocks.take(1), std::nullopt);
  EXPECT_FALSE(blocks.empty());
}

TEST(BlockListTest, KnowsItsBlocks) {
  BlockList blocks(4 * kGranule);
  ASSERT_EQ(blocks.take(2 * kGranule), 0u);
  EXPECT_FALSE(blocks.give_back(kGranule));
  EXPECT_FALSE(blocks.give_back(2 * kGranule));
  EXPECT_TRUE(blocks.give_back(0));
  EXPECT_FALSE(blocks.give_back(0));
  EXPECT_TRUE(blocks.empty());
}

TEST(BlockListTest, RefusesNothingAndTooMuch) {
  BlockList blocks(4 * kGranule);
  EXPECT_EQ(blocks.take(0), std::nullopt);
  EXPECT_EQ(blocks.take(SIZE_MAX), std::nullopt);
  EXPECT_EQ(blocks.take(SIZE_MAX - kGranule), std::nullopt);
}

TEST(BlockListTest, HolesGrowTogetherInEveryOrder) {
  const size_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    BlockList blocks(3 * kGranule);
    for (size_t i = 0; i < 3; ++i) ASSERT_EQ(blocks.take(kGranule), i * kGranule);
    for (const size_t which : order) EXPECT_TRUE(blocks.give_back(which * kGranule));
    EXPECT_EQ(blocks.take(3 * kGranule), 0u);
  }
}

TEST(BlockListTest, BlocksNeverOverlap) {
  constexpr size_t kBytes = 2 << 20;
  BlockList blocks(kBytes);
  std::map<size_t, size_t> taken;
  std::minstd_rand random(42);
  for (int step = 0; step < 20000; ++step) {
    if (random() % 5 < 3) {
      const size_t bytes = 1 + random() % 30000;
      const auto offset = blocks.take(bytes);
      if (!offset) continue;
      ASSERT_EQ(*offset % kGranule, 0u);
      ASSERT_LE(*offset + bytes, kBytes);
      const auto after = taken.lower_bound(*offset);
      ASSERT_TRUE(after == taken.end() || *offset + bytes <= after->first);
      ASSERT_TRUE(after == taken.begin() ||
                  std::prev(after)->first + std::prev(after)->second <= *offset);
      taken.emplace(*offset, bytes);
    } else if (!taken.empty()) {
      auto which = taken.lower_bound(random() % kBytes);
      if (which == taken.end()) which = taken.begin();
      ASSERT_TRUE(blocks.give_back(which->first));
      taken.erase(which);
    }
  }
  for (const auto& [offset, bytes] : taken) ASSERT_TRUE(blocks.give_back(offset));
  EXPECT_EQ(blocks.take(kBytes), 0u);
}

}  // namespace
}  // namespace fargpu::client
