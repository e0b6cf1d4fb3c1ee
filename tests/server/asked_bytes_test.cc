// Staging memory for bytes that the client was asked for: who has it until they come, and when they
// do not.
#include "server/copy/asked_bytes.h"

#include <gtest/gtest.h>

namespace fargpu::server {
namespace {

constexpr size_t kBytes = 8192;

class AskedBytesTest : public ::testing::Test {
 protected:
  void ask(uint64_t copy, uint64_t offset) {
    auto block = pool_.acquire(kBytes, StagingUse::kFromDevice, 0);
    ASSERT_TRUE(block.ok());
    asked_.ask(copy, offset, kBytes, std::make_shared<StagingBlock>(std::move(*block)));
  }
  // How many bytes of memory there are for these; none: they are not needed.
  size_t place(uint64_t copy, uint64_t offset, uint64_t bytes) {
    const auto place = asked_.place(copy, offset, bytes);
    EXPECT_TRUE(place.ok());
    return place.ok() ? place->size() : 0;
  }
  StagingPool pool_{nullptr};
  AskedBytes asked_;
};

TEST_F(AskedBytesTest, ABlockIsGivenBackWhenAllHasCome) {
  ask(1, 0);
  EXPECT_EQ(place(1, 0, kBytes), kBytes);
  asked_.came(1, kBytes / 2);
  EXPECT_EQ(pool_.kept_bytes(), 0u);
  asked_.came(1, kBytes / 2);
  EXPECT_EQ(pool_.kept_bytes(), kBytes);
}

TEST_F(AskedBytesTest, ACopyThatIsOverKeepsNoMemoryForBytesThatMayNeverCome) {
  ask(1, 0);
  ask(1, kBytes);
  ask(2, 0);
  asked_.drop(1);
  EXPECT_EQ(pool_.kept_bytes(), 2 * kBytes);
  EXPECT_EQ(place(1, 0, kBytes), 0u);
  asked_.came(1, kBytes);
  EXPECT_EQ(place(1, kBytes, kBytes), 0u);
  asked_.came(1, kBytes);
  EXPECT_FALSE(asked_.place(1, kBytes, 1).ok()) << "more than was asked for";
  EXPECT_EQ(place(2, 0, kBytes), kBytes);
}

TEST_F(AskedBytesTest, MemoryIntoWhichBytesAreReceivedStays) {
  ask(1, 0);
  EXPECT_EQ(place(1, 0, 1000), 1000u);
  asked_.drop(1);
  EXPECT_EQ(pool_.kept_bytes(), 0u) << "they are landing";
  asked_.came(1, 600);
  EXPECT_EQ(pool_.kept_bytes(), 0u);
  asked_.came(1, 400);
  EXPECT_EQ(pool_.kept_bytes(), kBytes);
  EXPECT_EQ(place(1, 1000, kBytes - 1000), 0u);
  asked_.came(1, kBytes - 1000);
}

}  // namespace
}  // namespace fargpu::server
