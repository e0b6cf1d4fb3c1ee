#include "sim/memory/allocation_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sim/context/context_memory.h"
#include "sim/memory/device_memory.h"

namespace fargpu::sim {
namespace {

Allocation at(uint64_t base, uint64_t bytes) {
  Allocation allocation;
  allocation.base = base;
  allocation.bytes = bytes;
  return allocation;
}

TEST(AllocationMapTest, FindsByAnyAddressInside) {
  AllocationMap map;
  ASSERT_TRUE(map.insert(at(100, 50)));
  EXPECT_FALSE(map.find(99));
  EXPECT_EQ(map.find(100)->base, 100u);
  EXPECT_EQ(map.find(149)->base, 100u);
  EXPECT_FALSE(map.find(150));
}

TEST(AllocationMapTest, RefusesOverlaps) {
  AllocationMap map;
  ASSERT_TRUE(map.insert(at(100, 50)));
  EXPECT_FALSE(map.insert(at(149, 1)));
  EXPECT_FALSE(map.insert(at(90, 11)));
  EXPECT_FALSE(map.insert(at(90, 100)));
  EXPECT_TRUE(map.insert(at(150, 10)));
  EXPECT_TRUE(map.insert(at(90, 10)));
}

TEST(AllocationMapTest, CoveredSpansMappingsSideBySideButNoGap) {
  AllocationMap map;
  for (Allocation mapping : {at(100, 50), at(150, 50), at(201, 10)}) {
    mapping.kind = Allocation::Kind::kMapped;
    map.insert(mapping);
  }
  EXPECT_TRUE(map.covered(120, 80));
  EXPECT_FALSE(map.covered(120, 81));
  EXPECT_FALSE(map.covered(UINT64_MAX - 3, 10));
  EXPECT_TRUE(map.touches(200, 2));
  EXPECT_FALSE(map.touches(211, 100));
  EXPECT_FALSE(map.touches(200, 1));
}

TEST(AllocationMapTest, CoveredSpansNoAllocationsSideBySide) {
  AllocationMap map;
  map.insert(at(100, 50));
  map.insert(at(150, 50));
  EXPECT_TRUE(map.covered(100, 50));
  EXPECT_TRUE(map.covered(150, 50));
  EXPECT_FALSE(map.covered(120, 31));
}

TEST(AllocationMapTest, TakesWhatBelongsToAContext) {
  AllocationMap map;
  for (uint64_t i = 0; i < 6; ++i) {
    Allocation allocation = at(i * 100, 10);
    allocation.context = i % 2;
    map.insert(allocation);
  }
  EXPECT_EQ(map.take_context(1).size(), 3u);
  EXPECT_FALSE(map.find(100));
  EXPECT_TRUE(map.find(200));
}

TEST(AllocationMapTest, BufferIdsAreNeverReused) {
  AllocationMap map;
  map.insert(at(100, 10));
  const uint64_t first = map.find(100)->buffer_id;
  map.erase(100);
  map.insert(at(100, 10));
  EXPECT_NE(map.find(100)->buffer_id, first);
}

TEST(AllocationMapTest, ManyThreadsInsertFindAndErase) {
  AllocationMap map;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 300; ++i) {
        const uint64_t base = (t << 32) + i * 64;
        if (!map.insert(at(base, 32))) ++wrong;
        if (!map.find(base + 31) || map.find(base + 32)) ++wrong;
        if (i % 2 == 0 && !map.erase(base)) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ContextMemoryTest, PeersMappingsAndReadOnlyHostMemory) {
  AllocationMap map;
  DeviceMemory memory(15, size_t{64} << 20);
  ContextMemory first(map, memory, 0, 1);
  Allocation other_device = at(1000, 10);
  other_device.device = 1;
  map.insert(other_device);
  EXPECT_FALSE(first.find(1000, 1));
  first.enable_peer(1);
  EXPECT_TRUE(first.find(1000, 1));
  first.disable_peer(1);
  EXPECT_FALSE(first.find(1000, 1));

  Allocation mapped = at(2000, 10);
  mapped.kind = Allocation::Kind::kMapped;
  mapped.device = 1;
  mapped.readable = 1;
  mapped.writable = 0;
  map.insert(mapped);
  ASSERT_TRUE(first.find(2000, 10));
  EXPECT_FALSE(first.find(2000, 10)->writable);
  EXPECT_FALSE(first.find(2005, 6));

  Allocation host = at(3000, 10);
  host.kind = Allocation::Kind::kRegistered;
  host.writable = 0;
  map.insert(host);
  EXPECT_FALSE(first.find(3000, 1)->writable);
}

TEST(ContextMemoryTest, AllocatesZeroedAndReleasesOnlyItsOwn) {
  AllocationMap map;
  DeviceMemory memory(15, size_t{64} << 20);
  ContextMemory context(map, memory, 0, 1);
  const size_t before = memory.available();
  const uint64_t address = context.allocate(1000);
  ASSERT_NE(address, 0u);
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(address + 992), 0u);
  EXPECT_TRUE(context.find(address, 1000));
  context.release(address + 8);
  EXPECT_TRUE(context.find(address, 1000));
  context.release(address);
  EXPECT_FALSE(context.find(address, 1));
  EXPECT_EQ(memory.available(), before);
  context.release(address);
}

}  // namespace
}  // namespace fargpu::sim
