// Sets of opcodes as they travel: whatever a peer sends is a set or an error.
#include "common/wire/opcode_set.h"

#include <gtest/gtest.h>

namespace fargpu::wire {
namespace {

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> result;
  for (const int value : values) result.push_back(static_cast<std::byte>(value));
  return result;
}

TEST(OpcodeSet, ABitStandsForAnOpcode) {
  OpcodeSet set;
  EXPECT_TRUE(set.empty());
  EXPECT_TRUE(set.bytes().empty());
  for (const uint16_t opcode : {0, 9, 64}) set.insert(opcode);
  EXPECT_EQ(set.bytes(), bytes({1, 2, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(set.control(), 0x201u);
  const auto same = OpcodeSet::from_bytes(set.bytes());
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(*same, set);
  for (unsigned opcode = 0; opcode < 1u << 16; ++opcode) {
    EXPECT_EQ(same->contains(static_cast<uint16_t>(opcode)),
              opcode == 0 || opcode == 9 || opcode == 64);
  }
}

TEST(OpcodeSet, NoBytesAndZeroBytesAreEmpty) {
  for (const size_t length : {size_t{0}, size_t{1}, size_t{13}, OpcodeSet::kMaxBytes}) {
    const auto set = OpcodeSet::from_bytes(std::vector<std::byte>(length));
    ASSERT_TRUE(set.ok());
    EXPECT_TRUE(set->empty());
  }
}

TEST(OpcodeSet, APeerMayClaimEverythingButNoMore) {
  const auto all =
      OpcodeSet::from_bytes(std::vector<std::byte>(OpcodeSet::kMaxBytes, std::byte{0xff}));
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(all->contains(0) && all->contains(12345) && all->contains(65535));
  EXPECT_EQ(all->bytes().size(), OpcodeSet::kMaxBytes);
  EXPECT_EQ(OpcodeSet::from_bytes(std::vector<std::byte>(OpcodeSet::kMaxBytes + 1)).status().code(),
            StatusCode::kProtocol);
}

}  // namespace
}  // namespace fargpu::wire
