// Several containers in one block: what comes back, and blocks of an attacker.
#include "common/fatbin/prelinked.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "common/fatbin/fatbin.h"

namespace fargpu {
namespace {

std::vector<std::byte> container(uint64_t body) {
  std::vector<std::byte> bytes(kFatbinHeaderBytes + body, std::byte{7});
  const uint32_t magic = kFatbinMagic;
  const uint16_t version = 1, header = kFatbinHeaderBytes;
  std::memcpy(bytes.data(), &magic, sizeof magic);
  std::memcpy(bytes.data() + 4, &version, sizeof version);
  std::memcpy(bytes.data() + 6, &header, sizeof header);
  std::memcpy(bytes.data() + 8, &body, sizeof body);
  return bytes;
}

std::vector<std::byte> joined(const PrelinkedBlock& block) {
  std::vector<std::byte> bytes;
  for (const auto& piece : block.pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
  return bytes;
}

std::vector<std::byte> block_of(const std::vector<std::vector<std::byte>>& containers) {
  const std::vector<std::span<const std::byte>> spans(containers.begin(), containers.end());
  return joined(prelinked_block(spans));
}

TEST(Prelinked, ContainersComeBackAligned) {
  const std::vector<std::vector<std::byte>> containers{container(0), container(100), container(24)};
  const auto block = block_of(containers);
  const auto read = read_prelinked(block);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), containers.size());
  for (size_t i = 0; i < containers.size(); ++i) {
    EXPECT_TRUE(std::equal(containers[i].begin(), containers[i].end(), (*read)[i].begin(),
                           (*read)[i].end()));
    EXPECT_EQ(((*read)[i].data() - block.data()) % 8, 0);
  }
}

TEST(Prelinked, OtherImagesAreNone) {
  const auto alone = container(100);
  EXPECT_TRUE(read_prelinked(alone)->empty());
  EXPECT_TRUE(read_prelinked(std::span(alone).first(3))->empty());
  const std::string_view text = "//\n.version 9.0\n";
  EXPECT_TRUE(read_prelinked(std::as_bytes(std::span(text)))->empty());
}

TEST(Prelinked, DamageIsAnErrorAndNeverAReadOutside) {
  const auto whole = block_of({container(64), container(100)});
  for (size_t bytes = 8; bytes < whole.size(); ++bytes) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes));
    EXPECT_FALSE(read_prelinked(cut).ok()) << bytes;
  }
  auto longer = whole;
  longer.resize(longer.size() + 8);
  EXPECT_FALSE(read_prelinked(longer).ok());
  auto huge = whole;
  const uint64_t bytes = ~uint64_t{0} - 7;
  std::memcpy(huge.data() + 8, &bytes, sizeof bytes);
  EXPECT_FALSE(read_prelinked(huge).ok());
  for (const uint32_t count : {0u, 3u, 5000u, ~0u}) {
    auto other = whole;
    std::memcpy(other.data() + 4, &count, sizeof count);
    EXPECT_FALSE(read_prelinked(other).ok()) << count;
  }
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    auto bad = whole;
    bad[random() % 48] = static_cast<std::byte>(random());
    (void)read_prelinked(bad);
  }
}

}  // namespace
}  // namespace fargpu
