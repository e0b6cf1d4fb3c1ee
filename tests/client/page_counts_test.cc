#include "client/memory/page_counts.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace fargpu::client {
namespace {

using Ranges = std::vector<PageCounts::Range>;

TEST(PageCountsTest, TellsFirstUsersAndLastOnes) {
  PageCounts pages;
  EXPECT_EQ(pages.unused(10, 20), (Ranges{{10, 20}}));
  pages.add(10, 20);
  EXPECT_EQ(pages.unused(10, 20), Ranges{});
  EXPECT_EQ(pages.unused(5, 30), (Ranges{{5, 10}, {20, 30}}));
  pages.add(15, 25);
  EXPECT_EQ(pages.remove(10, 20), (Ranges{{10, 15}}));
  EXPECT_EQ(pages.remove(15, 25), (Ranges{{15, 25}}));
  EXPECT_TRUE(pages.empty());
}

TEST(PageCountsTest, TheSameRangeTwiceGoesWithTheSecond) {
  PageCounts pages;
  pages.add(1, 2);
  pages.add(1, 2);
  EXPECT_EQ(pages.remove(1, 2), Ranges{});
  EXPECT_EQ(pages.remove(1, 2), (Ranges{{1, 2}}));
}

TEST(PageCountsTest, NeighboursAreToldAsOne) {
  PageCounts pages;
  pages.add(10, 20);
  pages.add(20, 30);
  pages.add(0, 5);
  EXPECT_EQ(pages.unused(0, 40), (Ranges{{5, 10}, {30, 40}}));
  EXPECT_EQ(pages.remove(10, 20), (Ranges{{10, 20}}));
  EXPECT_EQ(pages.unused(0, 40), (Ranges{{5, 20}, {30, 40}}));
}

// Against one counter for each page.
TEST(PageCountsTest, RandomRangesAgreeWithPlainCounting) {
  constexpr uint64_t kPages = 64;
  std::array<int, kPages> plain{};
  PageCounts pages;
  Ranges added;
  std::mt19937 random(7);
  const auto flat = [](const Ranges& ranges) {
    std::array<bool, kPages> in{};
    for (const auto& range : ranges) {
      for (uint64_t page = range.begin; page < range.end; ++page) in[page] = true;
    }
    return in;
  };
  for (int step = 0; step < 20000; ++step) {
    std::array<bool, kPages> expected{};
    if (added.empty() || (random() % 2 == 0 && added.size() < 40)) {
      const uint64_t begin = random() % kPages, end = begin + 1 + random() % (kPages - begin);
      for (uint64_t page = begin; page < end; ++page) expected[page] = plain[page]++ == 0;
      ASSERT_EQ(flat(pages.unused(begin, end)), expected) << "step " << step;
      pages.add(begin, end);
      added.push_back({begin, end});
    } else {
      const size_t which = random() % added.size();
      const auto [begin, end] = added[which];
      added.erase(added.begin() + static_cast<std::ptrdiff_t>(which));
      for (uint64_t page = begin; page < end; ++page) expected[page] = --plain[page] == 0;
      ASSERT_EQ(flat(pages.remove(begin, end)), expected) << "step " << step;
    }
    ASSERT_EQ(pages.empty(), added.empty());
  }
}

}  // namespace
}  // namespace fargpu::client
