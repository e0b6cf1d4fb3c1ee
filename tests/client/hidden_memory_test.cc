#include "client/memory/hidden_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace fargpu::client {
namespace {

std::vector<uint64_t> found_in(const HiddenMemory& hidden, const void* data, size_t bytes) {
  std::vector<uint64_t> bases;
  hidden.scan(data, bytes, [&](uint64_t base) { bases.push_back(base); });
  return bases;
}

TEST(HiddenMemoryTest, FindsWordsThatPointIntoRegions) {
  HiddenMemory hidden;
  std::vector<uint64_t> words(1000, 0x3f80'0000'3f80'0000);
  EXPECT_FALSE(hidden.any());
  hidden.add(0x3800'0000'0000, 4096);
  hidden.add(0x7f00'1234'5678, 10);
  EXPECT_TRUE(hidden.any());
  EXPECT_TRUE(found_in(hidden, words.data(), 8000).empty());
  words[3] = 0x3800'0000'0fff;
  words[500] = 0x3800'0000'1000;  // behind it
  words[998] = 0x5500'0000'0000;  // between the two
  words[999] = 0x7f00'1234'5681;
  const std::vector<uint64_t> both{0x3800'0000'0000, 0x7f00'1234'5678};
  EXPECT_EQ(found_in(hidden, words.data(), 8000), both);
  EXPECT_EQ(found_in(hidden, words.data(), 7999).size(), 1u);
  EXPECT_TRUE(found_in(hidden, words.data(), 31).empty());
  EXPECT_EQ(found_in(hidden, words.data() + 3, 8).size(), 1u);
}

TEST(HiddenMemoryTest, RemovedRegionsAreNotFound) {
  HiddenMemory hidden;
  hidden.add(0x1000, 16);
  hidden.add(0x9000, 16);
  EXPECT_EQ(hidden.find(0x900f), 0x9000u);
  EXPECT_FALSE(hidden.find(0x9010));
  EXPECT_FALSE(hidden.find(0xfff));
  hidden.remove(0x9000);
  EXPECT_FALSE(hidden.find(0x9000));
  EXPECT_EQ(hidden.find(0x1000), 0x1000u);
  hidden.remove(0x1000);
  hidden.remove(0x1000);
  EXPECT_FALSE(hidden.any());
  const uint64_t zero = 0;
  EXPECT_TRUE(found_in(hidden, &zero, 8).empty());
}

TEST(HiddenMemoryTest, KnowsWhatWasExposed) {
  HiddenMemory hidden;
  hidden.was_exposed(0x5000, 0x1000);
  hidden.was_exposed(0x1000, 0x1000);
  EXPECT_TRUE(hidden.may_be_known(0x1fff, 1));
  EXPECT_FALSE(hidden.may_be_known(0x2000, 0x3000));
  EXPECT_TRUE(hidden.may_be_known(0x2000, 0x3001));
  hidden.was_exposed(0x1800, 0x3000);  // more than the first one, up to 0x4800
  EXPECT_TRUE(hidden.may_be_known(0x47ff, 1));
  EXPECT_FALSE(hidden.may_be_known(0x4800, 0x800));
  hidden.was_exposed(0x4800, 0x800);  // between both
  EXPECT_TRUE(hidden.may_be_known(0x4900, 1));
  EXPECT_TRUE(hidden.may_be_known(0x5fff, 1));
  EXPECT_FALSE(hidden.may_be_known(0x6000, 0x1000));
  EXPECT_FALSE(hidden.may_be_known(0, 0x1000));
  EXPECT_FALSE(hidden.any());  // it hides nothing
}

TEST(HiddenMemoryTest, DataNeedsNoAlignment) {
  HiddenMemory hidden;
  hidden.add(0x3800'0000'0000, 4096);
  std::vector<std::byte> bytes(100);
  const uint64_t word = 0x3800'0000'0010;
  std::memcpy(bytes.data() + 3 + 8 * 5, &word, sizeof word);
  EXPECT_EQ(found_in(hidden, bytes.data() + 3, 90).size(), 1u);
  EXPECT_TRUE(found_in(hidden, bytes.data(), 90).empty());
}

}  // namespace
}  // namespace fargpu::client
