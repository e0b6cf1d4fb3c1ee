#include "client/copy/piece_size.h"

#include <gtest/gtest.h>

namespace fargpu::client {
namespace {

TEST(PieceSize, IsSmallWhileThreadsMeetAndForAWhile) {
  PieceSize size(16u << 20);
  EXPECT_EQ(size.next(0), 16u << 20);
  EXPECT_EQ(size.next(0), 16u << 20);
  for (int i = 0; i < PieceSize::kPiecesBesideOthers; ++i)
    EXPECT_EQ(size.next(5), PieceSize::kBesideOthers) << i;
  EXPECT_EQ(size.next(5), 16u << 20);
  EXPECT_EQ(size.next(6), PieceSize::kBesideOthers) << "they meet again";
}

TEST(PieceSize, IsNeverMoreThanAFrameHolds) {
  PieceSize size(64u << 10);
  EXPECT_EQ(size.next(0), 64u << 10);
  EXPECT_EQ(size.next(1), 64u << 10);
}

}  // namespace
}  // namespace fargpu::client
