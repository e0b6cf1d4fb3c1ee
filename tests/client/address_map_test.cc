#include "client/memory/address_map.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace fargpu::client {
namespace {

TEST(AddressMap, FindsInteriorPointers) {
  AddressMap map;
  ASSERT_TRUE(map.insert({.base = 0x1000, .bytes = 0x100}));
  EXPECT_FALSE(map.find(0xfff));
  ASSERT_TRUE(map.find(0x1000));
  EXPECT_EQ(map.find(0x10ff)->base, 0x1000u);
  EXPECT_FALSE(map.find(0x1100));
}

TEST(AddressMap, RefusesOverlapEmptyAndWrapping) {
  AddressMap map;
  ASSERT_TRUE(map.insert({.base = 0x1000, .bytes = 0x100}));
  EXPECT_FALSE(map.insert({.base = 0x1000, .bytes = 0x10}));
  EXPECT_FALSE(map.insert({.base = 0x10ff, .bytes = 0x10}));
  EXPECT_FALSE(map.insert({.base = 0xfff, .bytes = 2}));
  EXPECT_FALSE(map.insert({.base = 0x800, .bytes = 0x1000}));
  EXPECT_FALSE(map.insert({.base = 0x5000, .bytes = 0}));
  EXPECT_FALSE(map.insert({.base = UINT64_MAX - 4, .bytes = 16}));
  EXPECT_TRUE(map.insert({.base = 0x1100, .bytes = 0x10}));
  EXPECT_TRUE(map.insert({.base = 0xff0, .bytes = 0x10}));
}

TEST(AddressMap, FindsWhatOverlapsMemoryOfAnotherSession) {
  AddressMap map;
  Session* const own = reinterpret_cast<Session*>(0x10);
  Session* const other = reinterpret_cast<Session*>(0x20);
  ASSERT_TRUE(map.insert({.base = 0x1000, .bytes = 0x100, .session = own}));
  ASSERT_TRUE(map.insert({.base = 0x2000, .bytes = 0x100, .session = other}));
  EXPECT_FALSE(map.overlaps_other(0x1000, 0x1000, own));
  EXPECT_TRUE(map.overlaps_other(0x1000, 0x1001, own));
  EXPECT_TRUE(map.overlaps_other(0x20ff, 1, own));
  EXPECT_FALSE(map.overlaps_other(0x2100, 1, own));
  EXPECT_TRUE(map.overlaps_other(0xf00, 0x101, other));
  EXPECT_FALSE(map.overlaps_other(0xf00, 0x100, other));
  EXPECT_TRUE(map.overlaps_other(0x1080, 0x2000, other));
}

TEST(AddressMap, ExtentSpansTouchingRegionsOfMappedMemory) {
  AddressMap map;
  constexpr auto kMapped = MemoryKind::kVirtual;
  map.insert({.base = 0x1000, .bytes = 0x100, .kind = kMapped});
  map.insert({.base = 0x1100, .bytes = 0x100, .kind = kMapped});
  map.insert({.base = 0x1300, .bytes = 0x100, .kind = kMapped});
  EXPECT_EQ(map.extent(0x1080).bytes, 0x180u);
  EXPECT_TRUE(map.covers(0x1080, 0x180));
  EXPECT_FALSE(map.covers(0x1080, 0x181));
  EXPECT_EQ(map.extent(0x1200).bytes, 0u);
}

// A driver does not let a copy run from one allocation into the next.
TEST(AddressMap, AllocationsThatTouchAreApart) {
  AddressMap map;
  map.insert({.base = 0x1000, .bytes = 0x100});
  map.insert({.base = 0x1100, .bytes = 0x100});
  map.insert({.base = 0x1200, .bytes = 0x100, .kind = MemoryKind::kVirtual});
  EXPECT_EQ(map.extent(0x1080).bytes, 0x80u);
  EXPECT_EQ(map.extent(0x1180).bytes, 0x80u);
  EXPECT_TRUE(map.overlaps(0xfff, 2));
  EXPECT_TRUE(map.overlaps(0x12ff, 1));
  EXPECT_FALSE(map.overlaps(0x1300, 0x100));
  EXPECT_FALSE(map.overlaps(0xf00, 0x100));
}

TEST(AddressMap, MarkUsedReachesEveryTouchedRegion) {
  AddressMap map;
  map.insert({.base = 0x1000, .bytes = 0x100});
  map.insert({.base = 0x1100, .bytes = 0x100});
  map.insert({.base = 0x1200, .bytes = 0x100});
  map.mark_used(0x1080, 0x90);
  EXPECT_TRUE(map.find(0x1000)->used);
  EXPECT_TRUE(map.find(0x1100)->used);
  EXPECT_FALSE(map.find(0x1200)->used);
}

TEST(AddressMap, EraseNeedsTheBase) {
  AddressMap map;
  map.insert({.base = 0x1000, .bytes = 0x100});
  EXPECT_FALSE(map.erase(0x1001));
  ASSERT_TRUE(map.erase(0x1000));
  EXPECT_TRUE(map.empty());
}

TEST(AddressMap, RegionsOfTwoSessionsDoNotContinueEachOther) {
  AddressMap map;
  auto* const first = reinterpret_cast<Session*>(0x10);
  auto* const second = reinterpret_cast<Session*>(0x20);
  constexpr auto kMapped = MemoryKind::kVirtual;
  map.insert({.base = 0x1000, .bytes = 0x100, .kind = kMapped, .session = first});
  map.insert({.base = 0x1100, .bytes = 0x100, .kind = kMapped, .session = second});
  EXPECT_EQ(map.extent(0x1080).bytes, 0x80u);
  EXPECT_EQ(map.extent(0x1080).session, first);
  EXPECT_EQ(map.extent(0x1180).session, second);
  EXPECT_FALSE(map.covers(0x1000, 0x200));
}

TEST(AddressMap, ThreadsInsertFindErase) {
  AddressMap map;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&map, t] {
      for (uint64_t i = 0; i < 1000; ++i) {
        const uint64_t base = (t << 32) + i * 64 + 64;
        ASSERT_TRUE(map.insert({.base = base, .bytes = 64}));
        ASSERT_TRUE(map.find(base + 63));
        if (i % 2 == 0) {
          ASSERT_TRUE(map.erase(base));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  size_t left = 0;
  map.for_each([&](const Region&) { ++left; });
  EXPECT_EQ(left, 2000u);
}

}  // namespace
}  // namespace fargpu::client
