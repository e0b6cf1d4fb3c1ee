// Which blocks of a region are open, and which are suspect.
#include "client/hostmem/block_states.h"

#include <gtest/gtest.h>

namespace fargpu::client {
namespace {

constexpr size_t kBlock = BlockStates::kBlock;

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

TEST(BlockStates, WhatIsSettledIsComparedOnce) {
  BlockStates blocks(10 * kBlock);
  blocks.close({0, 4});
  blocks.settle({0, 6});
  EXPECT_EQ(blocks.next_suspect(0).end, 10u) << "it was open until now";
  blocks.compared({0, 10}, false);
  EXPECT_EQ(blocks.next_suspect(0).first, 4u);
  blocks.close({4, 10});
  blocks.compared({4, 10}, false);
  EXPECT_EQ(blocks.next_suspect(0).first, 4u) << "these were open when others were settled";
  blocks.open({0, 2});
  blocks.close({0, 2});
  blocks.compared({0, 2}, false);
  EXPECT_EQ(blocks.next_suspect(0).first, 0u) << "open once more";
}

}  // namespace
}  // namespace fargpu::client
