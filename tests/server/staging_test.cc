// A staging block must never look unpinned while the driver may still use it behind our back.
#include "server/copy/staging.h"

#include <gtest/gtest.h>

#include <set>

#include "common/base/address_check.h"
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

constexpr uint16_t kContext = 1, kOther = 2;

TEST_F(StagingTest, SaysPinnedExactlyWhenItIsWhateverTheSizeAskedFor) {
  StagingPool pool(&driver_);
  for (const uint16_t context : {0, 1, 2, 1, 0}) {
    for (const StagingUse use : {StagingUse::kToDevice, StagingUse::kFromDevice}) {
      for (const size_t bytes :
           {size_t{1}, StagingPool::kPinnedFrom / 2 + 1, StagingPool::kPinnedFrom - 1,
            StagingPool::kPinnedFrom, StagingPool::kPinnedFrom + 1, size_t{3} << 20}) {
        auto block = pool.acquire(bytes, use, context);
        ASSERT_TRUE(block.ok());
        EXPECT_EQ(block->bytes().size(), bytes);
        const std::byte* const behind = block->bytes().data() + bytes;
        EXPECT_EQ(address_check::is_poisoned(behind),
                  address_check::kOn && bytes != block->whole().size());
        EXPECT_EQ(block->pinned(), is_registered(*block)) << bytes << " context " << context;
        const bool must =
            context != 0 && (use == StagingUse::kFromDevice || bytes >= StagingPool::kPinnedFrom);
        EXPECT_TRUE(block->pinned() || !must) << bytes;
      }
    }
  }
}

TEST_F(StagingTest, ABlockIsUsedOnlyInTheContextThatItIsRegisteredIn) {
  StagingPool pool(&driver_);
  const std::byte* const of_first =
      pool.acquire(100, StagingUse::kFromDevice, kContext)->bytes().data();
  const std::byte* const of_other =
      pool.acquire(100, StagingUse::kFromDevice, kOther)->bytes().data();
  EXPECT_NE(of_first, of_other);
  EXPECT_EQ(pool.acquire(100, StagingUse::kFromDevice, kContext)->bytes().data(), of_first);
  EXPECT_EQ(pool.acquire(100, StagingUse::kFromDevice, kOther)->bytes().data(), of_other);
}

// One context goes: its registrations go before it, those of another one stay.
TEST_F(StagingTest, OnlyRegistrationsOfTheContextThatGoesAreTaken) {
  StagingPool pool(&driver_);
  const std::byte* const of_other =
      pool.acquire(100, StagingUse::kFromDevice, kOther)->bytes().data();
  ASSERT_TRUE(pool.acquire(100, StagingUse::kFromDevice, kContext)->pinned());
  auto held = pool.acquire(100, StagingUse::kFromDevice, kContext);
  ASSERT_TRUE(held.ok() && held->pinned());
  ASSERT_TRUE(pool.acquire(100, StagingUse::kFromDevice, kContext)->pinned());
  const std::byte* const in_use = held->bytes().data();
  {
    const std::vector<StagingRegistration> taken = pool.take_registrations(kContext);
    EXPECT_EQ(taken.size(), 2u) << "a free block and the one in use";
    EXPECT_TRUE(pool.take_registrations(kContext).empty());
    // Not before it is undone: the driver would take it for registered.
    auto meanwhile = pool.acquire(100, StagingUse::kFromDevice, kOther);
    EXPECT_EQ(meanwhile->bytes().data(), of_other);
    for (const StagingRegistration& registration : taken)
      EXPECT_EQ(registration.undo(), CUDA_SUCCESS);
  }
  EXPECT_EQ(registered().size(), 1u) << "that of the other context";
  const_cast<std::byte*>(in_use)[0] = std::byte{1};  // still there
  *held = StagingBlock();
  auto again = pool.acquire(100, StagingUse::kFromDevice, kContext);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->pinned());
  EXPECT_TRUE(is_registered(*again));
}

TEST_F(StagingTest, MemoryThatIsNotKeptIsUnregisteredByWhoeverMayWait) {
  StagingPool pool(&driver_);
  std::vector<StagingRegistration> retired;
  pool.on_retire([&](StagingRegistration one) { retired.push_back(std::move(one)); });
  std::vector<StagingBlock> blocks;
  constexpr size_t kBytes = StagingPool::kKeepBytes / 2;
  for (int i = 0; i < 3; ++i) {
    auto block = pool.acquire(kBytes, StagingUse::kToDevice, kContext);
    ASSERT_TRUE(block.ok());
    blocks.push_back(std::move(*block));
  }
  blocks.clear();
  ASSERT_EQ(retired.size(), 1u);
  EXPECT_EQ(retired[0].context(), kContext);
  EXPECT_EQ(registered().size(), 3u);
  EXPECT_EQ(retired[0].undo(), CUDA_SUCCESS);
  retired.clear();
  EXPECT_EQ(registered().size(), 2u);
}

TEST_F(StagingTest, BlocksAreReusedAndDistinctWhileHeld) {
  StagingPool pool(&driver_);
  auto first = pool.acquire(5000, StagingUse::kToDevice, 0),
       second = pool.acquire(5000, StagingUse::kToDevice, 0);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->bytes().data(), second->bytes().data());
  const std::byte* memory = first->bytes().data();
  *first = StagingBlock();
  EXPECT_EQ(pool.acquire(6000, StagingUse::kToDevice, 0)->bytes().data(), memory);
  EXPECT_FALSE(pool.acquire(~size_t{0} / 2, StagingUse::kToDevice, 0).ok());
}

TEST_F(StagingTest, KeepsToItsBudget) {
  constexpr size_t kPiece = 1 << 20;
  const auto budget = std::make_shared<HostBudget>(2 * kPiece);
  {
    StagingPool pool(&driver_, budget);
    auto first = pool.acquire(kPiece, StagingUse::kFromDevice, kContext),
         second = pool.acquire(kPiece, StagingUse::kFromDevice, kContext);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(pool.acquire(1, StagingUse::kToDevice, 0).status().code(), StatusCode::kNoCapacity);
    {
      const auto passing = pool.acquire_in_passing(kPiece, kContext);
      ASSERT_TRUE(passing.ok());
      EXPECT_TRUE(passing->beyond_budget());
      EXPECT_FALSE(first->beyond_budget());
    }
    EXPECT_EQ(pool.kept_bytes(), 0u) << "it is not kept";
    // What is kept gives way to what is needed.
    *first = StagingBlock();
    *second = StagingBlock();
    EXPECT_EQ(pool.kept_bytes(), 2 * kPiece);
    EXPECT_TRUE(pool.acquire(2 * kPiece, StagingUse::kToDevice, 0).ok());
  }
  EXPECT_EQ(budget->used(), 0u);
}

TEST_F(StagingTest, NothingStaysRegisteredAfterThePool) {
  {
    StagingPool pool(&driver_);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(
          pool.acquire(StagingPool::kPinnedFrom << i, StagingUse::kToDevice, kContext).ok());
    }
    EXPECT_EQ(registered().size(), 3u);
  }
  EXPECT_TRUE(registered().empty());
}

}  // namespace
}  // namespace fargpu::server
