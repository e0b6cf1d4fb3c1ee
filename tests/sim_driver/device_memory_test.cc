#include "sim/memory/device_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace fargpu::sim {
namespace {

constexpr size_t kTotal = size_t{64} << 20;

TEST(DeviceMemoryTest, AccountsAndRefuses) {
  DeviceMemory memory(14, kTotal);
  EXPECT_EQ(memory.available(), kTotal);
  const uint64_t big = memory.allocate(kTotal);
  ASSERT_NE(big, 0u);
  EXPECT_EQ(memory.available(), 0u);
  EXPECT_EQ(memory.allocate(1), 0u);
  memory.free(big, kTotal);
  EXPECT_EQ(memory.available(), kTotal);
  EXPECT_EQ(memory.allocate(kTotal + 1), 0u);
  EXPECT_EQ(memory.allocate(0), 0u);
  EXPECT_EQ(memory.allocate(UINT64_MAX), 0u);
}

TEST(DeviceMemoryTest, AllocationsAreAlignedAndNeverTouch) {
  DeviceMemory memory(14, kTotal);
  std::set<uint64_t> starts;
  for (int i = 0; i < 100; ++i) {
    const uint64_t address = memory.allocate(1 + static_cast<uint64_t>(i) * 37);
    ASSERT_NE(address, 0u);
    EXPECT_EQ(address % 512, 0u);  // as textures want
    starts.insert(address);
  }
  uint64_t previous = 0;
  for (uint64_t start : starts) {
    EXPECT_GE(start - previous, 512u);
    previous = start;
  }
}

TEST(DeviceMemoryTest, FreedPagesStayAccessible) {
  DeviceMemory memory(14, kTotal);
  constexpr uint64_t kBytes = 1 << 20;
  const uint64_t address = memory.allocate(kBytes);
  std::memset(reinterpret_cast<void*>(address), 0x5a, kBytes);
  memory.free(address, kBytes);
  volatile const auto* byte = reinterpret_cast<const unsigned char*>(address + kBytes / 2);
  EXPECT_EQ(*byte, 0);  // given back to the system, not made inaccessible
}

TEST(DeviceMemoryTest, ChargesForMemoryElsewhere) {
  DeviceMemory memory(14, kTotal);
  EXPECT_TRUE(memory.charge(kTotal / 2));
  EXPECT_FALSE(memory.charge(kTotal));
  EXPECT_EQ(memory.allocate(kTotal), 0u);
  memory.refund(kTotal / 2);
  EXPECT_NE(memory.allocate(kTotal), 0u);
}

// What two daemons of different slots give out is apart, and fits into the slots.
TEST(DeviceMemoryTest, TheSlotMovesTheWindow) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have their shadow memory there";
#endif
  DeviceMemory lower(0, kTotal, 5), last_of_lower(15, kTotal, 5), upper(0, kTotal, 6);
  const uint64_t begin = lower.allocate(100), next = upper.allocate(100);
  EXPECT_EQ(next - begin, uint64_t{1} << 40);
  EXPECT_LT(last_of_lower.allocate(100), next);
}

TEST(DeviceMemoryTest, TwoOfOneIndexDoNotCollide) {
  DeviceMemory first(13, kTotal), second(13, kTotal);
  EXPECT_NE(first.allocate(100), second.allocate(100));
}

}  // namespace
}  // namespace fargpu::sim
