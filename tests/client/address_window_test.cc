#include "client/memory/address_window.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "client/memory/reserve.h"

namespace fargpu::client {
namespace {

TEST(AddressWindowTest, AddressesComeAgain) {
  AddressWindow window(1000, 2000);
  EXPECT_EQ(window.take(600), 1000u);
  EXPECT_EQ(window.take(600), std::nullopt);
  EXPECT_EQ(window.take(400), 1600u);
  EXPECT_EQ(window.take(1), std::nullopt);
  window.give_back(1000, 600);
  EXPECT_EQ(window.take(600), 1000u);
}

TEST(AddressWindowTest, FreeNeighboursGrowTogether) {
  AddressWindow window(0, 400);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(window.take(100), i * 100);
  window.give_back(0, 100);
  window.give_back(200, 100);
  EXPECT_EQ(window.take(200), std::nullopt);
  window.give_back(100, 100);
  EXPECT_EQ(window.take(300), 0u);
  window.give_back(300, 100);
  window.give_back(0, 300);
  EXPECT_EQ(window.take(400), 0u);
}

TEST(AddressWindowTest, TheSmallestHoleThatIsLargeEnoughIsTaken) {
  AddressWindow window(0, 1000);
  for (const uint64_t size : {300, 100, 100, 100}) ASSERT_TRUE(window.take(size));
  window.give_back(0, 300);
  window.give_back(400, 100);
  EXPECT_EQ(window.take(90), 400u);
  EXPECT_EQ(window.take(200), 0u);
}

TEST(AddressWindowTest, NothingIsGivenTwiceOrLost) {
  constexpr uint64_t kEnd = 1 << 16;
  AddressWindow window(0, kEnd);
  std::map<uint64_t, uint64_t> taken;
  std::mt19937 random(3);
  for (int step = 0; step < 20000; ++step) {
    if (taken.empty() || random() % 2 == 0) {
      const uint64_t bytes = 1 + random() % 3000;
      const auto address = window.take(bytes);
      if (!address) continue;
      const auto after = taken.lower_bound(*address);
      ASSERT_TRUE(after == taken.end() || after->first >= *address + bytes);
      if (after != taken.begin()) {
        ASSERT_LE(std::prev(after)->first + std::prev(after)->second, *address);
      }
      taken.emplace(*address, bytes);
    } else {
      const auto gone = std::next(taken.begin(), static_cast<int>(random() % taken.size()));
      window.give_back(gone->first, gone->second);
      taken.erase(gone);
    }
  }
  for (const auto& [address, bytes] : taken) window.give_back(address, bytes);
  EXPECT_EQ(window.take(kEnd), 0u);
}

// More than the window holds altogether, by far.
TEST(AllocateHostTest, TheWindowIsUsedAgain) {
  constexpr size_t kBytes = size_t{1} << 28;
  void* const kept = allocate_host(4096);
  const auto window = reinterpret_cast<uint64_t>(kept) >> 42;
  for (int i = 0; i < 20000; ++i) {
    void* const memory = allocate_host(kBytes);
    ASSERT_NE(memory, nullptr);
    ASSERT_EQ(reinterpret_cast<uint64_t>(memory) >> 42, window) << "allocation " << i;
    free_host(memory, kBytes);
  }
  free_host(kept, 4096);
}

TEST(AllocateHostTest, RetiredAddressesAreNotGivenOutAgain) {
  void* const first = allocate_host(4096);
  retire_addresses(first);
  free_host(first, 4096);
  void* const second = allocate_host(4096);
  EXPECT_NE(second, first);
  free_host(second, 4096);
  void* const third = allocate_host(4096);
  EXPECT_EQ(third, second);
  free_host(third, 4096);
}

}  // namespace
}  // namespace fargpu::client
