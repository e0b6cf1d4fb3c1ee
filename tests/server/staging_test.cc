// A staging block must never look unpinned while the driver may still use it behind our back.
#include "server/staging.h"

#include <gtest/gtest.h>

#include <set>

#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

std::set<void*>& registered() {
  static std::set<void*> memory;
  return memory;
}

class StagingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    registered().clear();
    driver_.cuMemHostRegister_v2 = [](void* memory, size_t, unsigned) {
      return registered().insert(memory).second ? CUDA_SUCCESS
                                                : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    };
    driver_.cuMemHostUnregister = [](void* memory) {
      return registered().erase(memory) != 0 ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    };
  }
  static bool is_registered(const StagingBlock& block) {
    return registered().contains(block.bytes().data());
  }
  DriverTable driver_;
};

TEST_F(StagingTest, SaysPinnedExactlyWhenItIsWhateverTheSizeAskedFor) {
  StagingPool pool(&driver_);
  for (const bool context : {false, true, true, false}) {
    pool.context_available(context);
    for (const StagingUse use : {StagingUse::kToDevice, StagingUse::kFromDevice}) {
      for (const size_t bytes :
           {size_t{1}, StagingPool::kPinnedFrom / 2 + 1, StagingPool::kPinnedFrom - 1,
            StagingPool::kPinnedFrom, StagingPool::kPinnedFrom + 1, size_t{3} << 20}) {
        auto block = pool.acquire(bytes, use);
        ASSERT_TRUE(block.ok());
        EXPECT_EQ(block->bytes().size(), bytes);
        EXPECT_EQ(block->pinned(), is_registered(*block)) << bytes << " context " << context;
        const bool must =
            context && (use == StagingUse::kFromDevice || bytes >= StagingPool::kPinnedFrom);
        EXPECT_TRUE(block->pinned() || !must) << bytes;
      }
    }
  }
}

// A context goes while another one lives: what was registered in the second must not be taken for
// plain memory.
TEST_F(StagingTest, NoFreeBlockStaysRegisteredWhenAContextGoes) {
  StagingPool pool(&driver_);
  pool.context_available(true);
  auto held = pool.acquire(StagingPool::kPinnedFrom, StagingUse::kToDevice);
  ASSERT_TRUE(held.ok() && held->pinned());
  ASSERT_TRUE(pool.acquire(StagingPool::kPinnedFrom, StagingUse::kToDevice)->pinned());
  pool.context_available(false);
  EXPECT_EQ(registered().size(), 1u) << "only the block in use";
  EXPECT_TRUE(held->pinned());
  auto again = pool.acquire(StagingPool::kPinnedFrom, StagingUse::kToDevice);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->pinned());
  EXPECT_FALSE(is_registered(*again));
}

TEST_F(StagingTest, BlocksAreReusedAndDistinctWhileHeld) {
  StagingPool pool(&driver_);
  auto first = pool.acquire(5000, StagingUse::kToDevice),
       second = pool.acquire(5000, StagingUse::kToDevice);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->bytes().data(), second->bytes().data());
  const std::byte* memory = first->bytes().data();
  *first = StagingBlock();
  EXPECT_EQ(pool.acquire(6000, StagingUse::kToDevice)->bytes().data(), memory);
  EXPECT_FALSE(pool.acquire(~size_t{0} / 2, StagingUse::kToDevice).ok());
}

TEST_F(StagingTest, NothingStaysRegisteredAfterThePool) {
  {
    StagingPool pool(&driver_);
    pool.context_available(true);
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(pool.acquire(StagingPool::kPinnedFrom << i, StagingUse::kToDevice).ok());
    EXPECT_EQ(registered().size(), 3u);
  }
  EXPECT_TRUE(registered().empty());
}

}  // namespace
}  // namespace fargpu::server
