#include <gtest/gtest.h>
#include <sys/mman.h>

#include <numeric>
#include <vector>

#include "client/memory/reserve.h"
#include "client/transfer/copy.h"

namespace fargpu::client {
namespace {

uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }

TEST(Box, SpanIsJudged) {
  EXPECT_EQ(span_of({10, 1, 1}, {100, 0, 0}), 10u);
  EXPECT_EQ(span_of({10, 3, 1}, {100, 16, 0}), 42u);
  EXPECT_EQ(span_of({10, 3, 2}, {100, 16, 64}), 106u);
  EXPECT_EQ(span_of({0, 3, 2}, {100, 16, 64}), 0u);
  EXPECT_EQ(span_of({10, 2, 1}, {100, 9, 0}), 0u) << "rows overlap";
  EXPECT_EQ(span_of({10, 3, 1}, {100, UINT64_MAX / 2, 0}), 0u) << "product too large";
  EXPECT_EQ(span_of({16, 1, 1}, {UINT64_MAX - 8, 0, 0}), 0u) << "wraps around";
}

TEST(Box, PartsArePackedAndUnpackedFromAnywhere) {
  const Box box{5, 3, 2};
  std::vector<uint8_t> source(200), whole(30);
  std::iota(source.begin(), source.end(), uint8_t{0});
  const Side from{address(source.data()), 7, 40}, to_side{0, 9, 50};
  pack(box, from, reinterpret_cast<std::byte*>(whole.data()));
  for (size_t begin = 0; begin < whole.size(); ++begin) {
    for (size_t end = begin; end <= whole.size(); ++end) {
      std::vector<uint8_t> part(end - begin), target(200, 0xee), expected(200, 0xee);
      pack_part(box, from, begin, std::as_writable_bytes(std::span(part)));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin));
      Side to = to_side;
      to.address = address(target.data());
      unpack_part(box, to, begin, std::as_bytes(std::span(part)));
      for (size_t i = begin; i < end; ++i) {
        const size_t row = i / box.width;
        expected[row / 3 * 50 + row % 3 * 9 + i % box.width] = whole[i];
      }
      EXPECT_EQ(target, expected) << begin << " to " << end;
    }
  }
}

TEST(Box, PackAndUnpackAreInverse) {
  const Box box{5, 3, 2};
  std::vector<uint8_t> source(200), target(200, 0xee), packed(30);
  std::iota(source.begin(), source.end(), uint8_t{0});
  const Side from{address(source.data()), 7, 40};
  pack(box, from, reinterpret_cast<std::byte*>(packed.data()));
  EXPECT_EQ(packed[0], 0);
  EXPECT_EQ(packed[5], 7);
  EXPECT_EQ(packed[15], 40);
  const Side to{address(target.data()), 9, 50};
  unpack(box, to, reinterpret_cast<const std::byte*>(packed.data()));
  EXPECT_EQ(target[0], 0);
  EXPECT_EQ(target[9 + 4], 11);
  EXPECT_EQ(target[50 + 18], 54);
  EXPECT_EQ(target[5], 0xee) << "bytes between rows stay";
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
