#include "server/memory/copy_pieces.h"

#include <gtest/gtest.h>

#include <vector>

namespace fargpu::server {
namespace {

// The device address of each packed byte, by the shape itself and by its pieces.
std::vector<CUdeviceptr> bytes_of(CUdeviceptr device, const Shape& shape) {
  std::vector<CUdeviceptr> bytes;
  for (size_t z = 0; z < shape.depth; ++z)
    for (size_t y = 0; y < shape.height; ++y)
      for (size_t x = 0; x < shape.width; ++x)
        bytes.push_back(device + z * shape.slice_pitch + y * shape.pitch + x);
  return bytes;
}

TEST(CopyPieces, FollowEachOtherAndCoverTheShapeWhateverTheLimit) {
  const Shape shapes[] = {{0, 0, 100, 1, 1},  {16, 0, 10, 7, 1},   {10, 70, 10, 7, 3},
                          {12, 100, 9, 5, 4}, {12, 100, 1, 30, 2}, {64, 64, 40, 1, 5}};
  for (const Shape& shape : shapes) {
    const std::vector<CUdeviceptr> expected = bytes_of(0x1000, shape);
    for (uint64_t limit = 1; limit <= expected.size() + 1; ++limit) {
      std::vector<CUdeviceptr> covered;
      while (covered.size() < expected.size()) {
        const CopyPiece piece = piece_at(0x1000, shape, covered.size(), limit);
        ASSERT_GT(piece.bytes, 0u);
        ASSERT_LE(piece.bytes, limit);
        const std::vector<CUdeviceptr> bytes = bytes_of(piece.device, piece.shape);
        ASSERT_EQ(bytes.size(), piece.bytes);
        covered.insert(covered.end(), bytes.begin(), bytes.end());
      }
      ASSERT_EQ(covered, expected) << "at most " << limit;
    }
  }
}

TEST(CopyPieces, AreAsLargeAsTheyMayBe) {
  const Shape shape{12, 100, 10, 5, 4};
  EXPECT_EQ(piece_at(0, shape, 0, 1000).bytes, 200u);
  EXPECT_EQ(piece_at(0, shape, 0, 120).bytes, 100u) << "two slices";
  EXPECT_EQ(piece_at(0, shape, 0, 49).bytes, 40u) << "four rows";
  EXPECT_EQ(piece_at(0, shape, 40, 49).bytes, 10u) << "the rest of the slice";
  EXPECT_EQ(piece_at(0, shape, 0, 7).bytes, 7u);
  EXPECT_EQ(piece_at(0, shape, 7, 7).bytes, 3u) << "the rest of the row";
}

}  // namespace
}  // namespace fargpu::server
