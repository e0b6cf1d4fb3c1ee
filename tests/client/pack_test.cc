#include "client/copy/pack.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <numeric>
#include <vector>

#include "client/memory/reserve.h"

namespace fargpu::client {
namespace {

uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }

TEST(Pack, PartsArePackedAndUnpackedFromAnywhere) {
  const copy::Shape shape{5, 3, 2};
  std::vector<uint8_t> source(200), whole(30);
  std::iota(source.begin(), source.end(), uint8_t{0});
  const copy::Rows from{address(source.data()), 7, 40}, to_rows{0, 9, 50};
  pack(shape, from, 0, std::as_writable_bytes(std::span(whole)));
  EXPECT_EQ(whole[0], 0);
  EXPECT_EQ(whole[5], 7);
  EXPECT_EQ(whole[15], 40);
  for (size_t begin = 0; begin < whole.size(); ++begin) {
    for (size_t end = begin; end <= whole.size(); ++end) {
      std::vector<uint8_t> part(end - begin), target(200, 0xee), expected(200, 0xee);
      pack(shape, from, begin, std::as_writable_bytes(std::span(part)));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin));
      copy::Rows to = to_rows;
      to.address = address(target.data());
      unpack(shape, to, begin, std::as_bytes(std::span(part)));
      for (size_t i = begin; i < end; ++i) {
        const size_t row = i / shape.width;
        expected[row / 3 * 50 + row % 3 * 9 + i % shape.width] = whole[i];
      }
      EXPECT_EQ(target, expected) << begin << " to " << end;
    }
  }
}

TEST(PackBuffer, IsAllocatedOnceForPiecesThatDoNotGrow) {
  PackBuffer buffer;
  std::byte* const first = buffer.of(100'000).data();
  EXPECT_EQ(buffer.of(60'000).data(), first);
  EXPECT_EQ(buffer.of(100'000).data(), first);
  EXPECT_EQ(buffer.of(100'000).size(), 100'000u);
}

TEST(PackBuffer, SmallPiecesNeedNoAllocation) {
  PackBuffer buffer;
  const std::span<std::byte> bytes = buffer.of(2048);
  EXPECT_EQ(bytes.size(), 2048u);
  EXPECT_GE(address(bytes.data()), address(&buffer));
  EXPECT_LE(address(bytes.data() + bytes.size()), address(&buffer + 1));
}

TEST(Reserve, KeepsAddressesFreeAndGivesThemBack) {
  void* memory = allocate_host(10000);
  ASSERT_NE(memory, nullptr);
  static_cast<char*>(memory)[9999] = 1;
  EXPECT_TRUE(readable(memory));
  EXPECT_FALSE(reserve_addresses(address(memory), 100)) << "in use";
  free_host(memory, 10000);
  EXPECT_FALSE(readable(memory));
  ASSERT_TRUE(reserve_addresses(address(memory), 10000));
  EXPECT_FALSE(readable(memory));
  release_reserved(address(memory), 10000);
  EXPECT_TRUE(reserve_addresses(address(memory), 10000));
  release_reserved(address(memory), 10000);
}

bool is_mapped(uint64_t page) {
  unsigned char in_core = 0;
  return ::mincore(reinterpret_cast<void*>(page), 4096, &in_core) == 0;
}

TEST(Reserve, APageStaysUntilItsLastUserIsGone) {
  void* const memory = allocate_host(3 * 4096);
  const uint64_t page = address(memory);
  free_host(memory, 3 * 4096);
  ASSERT_TRUE(reserve_addresses(page + 4000, 200));  // the first two pages
  ASSERT_TRUE(reserve_addresses(page + 4200, 100));  // the second one
  ASSERT_TRUE(reserve_addresses(page + 8000, 300));  // the last two
  release_reserved(page + 4000, 200);
  EXPECT_FALSE(is_mapped(page));
  EXPECT_TRUE(is_mapped(page + 4096));
  release_reserved(page + 8000, 300);
  EXPECT_TRUE(is_mapped(page + 4096));
  EXPECT_FALSE(is_mapped(page + 8192));
  release_reserved(page + 4200, 100);
  EXPECT_FALSE(is_mapped(page + 4096));
}

TEST(Reserve, WhatIsInTheWayStaysAndNothingIsReserved) {
  void* const memory = allocate_host(2 * 4096);
  const uint64_t page = address(memory);
  ASSERT_EQ(::munmap(memory, 4096), 0);
  EXPECT_FALSE(reserve_addresses(page, 2 * 4096));
  EXPECT_FALSE(is_mapped(page));
  static_cast<char*>(memory)[4096] = 1;
  free_host(memory, 2 * 4096);
}

}  // namespace
}  // namespace fargpu::client
