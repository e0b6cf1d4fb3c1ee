#include "server/placement/pool.h"

#include <gtest/gtest.h>

namespace fargpu::server {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::vector<Gpu> three_gpus() {
  return {{"GPU-aaaa1111", "first", 8 * kGiB, {}},
          {"GPU-aaaa2222", "second", 8 * kGiB, {}},
          {"GPU-bbbb3333", "third", 16 * kGiB, {}}};
}

PlacementRequest wish(uint32_t gpus, uint64_t memory = 0, std::vector<std::string> devices = {}) {
  return {gpus, memory, std::move(devices)};
}

using Indices = std::vector<size_t>;

TEST(Pool, SpreadsSessionsOverTheLeastLoaded) {
  Pool pool(three_gpus(), {});
  EXPECT_EQ(*pool.place(1, wish(1)), Indices{0});
  EXPECT_EQ(*pool.place(2, wish(1)), Indices{1});
  EXPECT_EQ(*pool.place(3, wish(1)), Indices{2});
  pool.release(2);
  EXPECT_EQ(*pool.place(4, wish(1)), Indices{1});
}

TEST(Pool, ReservedMemoryBreaksTies) {
  Pool pool(three_gpus(), {});
  ASSERT_TRUE(pool.place(1, wish(1, 4 * kGiB, {"0"})).ok());
  ASSERT_TRUE(pool.place(2, wish(1, 1 * kGiB, {"1"})).ok());
  ASSERT_TRUE(pool.place(3, wish(1, 2 * kGiB, {"2"})).ok());
  EXPECT_EQ(*pool.place(4, wish(1)), Indices{1});
}

TEST(Pool, ZeroGpusMeansOne) {
  Pool pool(three_gpus(), {});
  EXPECT_EQ(pool.place(1, wish(0))->size(), 1u);
}

TEST(Pool, SeveralGpusAreDistinctAndAscending) {
  Pool pool(three_gpus(), {});
  ASSERT_TRUE(pool.place(1, wish(1, 0, {"0"})).ok());
  EXPECT_EQ(*pool.place(2, wish(2)), (Indices{1, 2}));
  EXPECT_EQ(*pool.place(3, wish(3)), (Indices{0, 1, 2}));
}

TEST(Pool, MoreGpusThanThereAreCanNeverBe) {
  Pool pool(three_gpus(), {});
  EXPECT_EQ(pool.place(1, wish(4)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.jobs(), 0u);
}

TEST(Pool, TakesNamedGpusInTheirOrder) {
  Pool pool(three_gpus(), {});
  EXPECT_EQ(*pool.place(1, wish(0, 0, {"GPU-bbbb3333", "0"})), (Indices{2, 0}));
  EXPECT_EQ(*pool.place(2, wish(1, 0, {"GPU-b"})), Indices{2});
}

TEST(Pool, RefusesNamesThatMeanNothingOrTwoThings) {
  Pool pool(three_gpus(), {});
  for (const auto& devices : std::vector<std::vector<std::string>>{
           {"3"}, {"GPU-cccc"}, {"GPU-aaaa"}, {"GPU-"}, {""}, {"-1"}, {"0", "GPU-aaaa1111"}}) {
    EXPECT_EQ(pool.place(1, wish(0, 0, devices)).status().code(), StatusCode::kInvalidArgument)
        << devices[0];
  }
  EXPECT_EQ(pool.place(1, wish(3, 0, {"0", "1"})).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.load(0).jobs, 0u);
}

TEST(Pool, ReservesMemoryAndGivesItBack) {
  Pool pool(three_gpus(), {});
  ASSERT_TRUE(pool.place(1, wish(1, 6 * kGiB, {"0"})).ok());
  EXPECT_EQ(pool.load(0).reserved_bytes, 6 * kGiB);
  EXPECT_EQ(pool.place(2, wish(1, 3 * kGiB, {"0"})).status().code(), StatusCode::kNoCapacity);
  EXPECT_EQ(*pool.place(3, wish(1, 2 * kGiB, {"0"})), Indices{0});
  pool.release(1);
  EXPECT_EQ(*pool.place(4, wish(1, 6 * kGiB, {"0"})), Indices{0});
}

TEST(Pool, MemoryThatNoGpuHasCanNeverBe) {
  Pool pool(three_gpus(), {});
  EXPECT_EQ(pool.place(1, wish(1, 17 * kGiB)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*pool.place(1, wish(1, 16 * kGiB)), Indices{2});
}

TEST(Pool, OversubscriptionGoesBeyondTheGpuButNotForOneSession) {
  PoolLimits limits;
  limits.oversubscribe_memory = true;
  Pool pool(three_gpus(), limits);
  ASSERT_TRUE(pool.place(1, wish(1, 8 * kGiB, {"0"})).ok());
  EXPECT_TRUE(pool.place(2, wish(1, 8 * kGiB, {"0"})).ok());
  EXPECT_EQ(pool.load(0).reserved_bytes, 16 * kGiB);
  EXPECT_EQ(pool.place(3, wish(1, 17 * kGiB)).status().code(), StatusCode::kInvalidArgument);
}

TEST(Pool, LimitsSessionsInAllAndPerGpu) {
  PoolLimits limits;
  limits.max_sessions = 4;
  limits.max_sessions_per_gpu = 2;
  Pool pool(three_gpus(), limits);
  ASSERT_TRUE(pool.place(1, wish(1, 0, {"0"})).ok());
  ASSERT_TRUE(pool.place(2, wish(1, 0, {"0"})).ok());
  EXPECT_EQ(pool.place(3, wish(1, 0, {"0"})).status().code(), StatusCode::kNoCapacity);
  ASSERT_TRUE(pool.place(4, wish(1)).ok());
  ASSERT_TRUE(pool.place(5, wish(1)).ok());
  EXPECT_EQ(pool.place(6, wish(1)).status().code(), StatusCode::kNoCapacity);
  pool.release(1);
  EXPECT_TRUE(pool.place(7, wish(1)).ok());
}

TEST(Pool, AFailedPlacementReservesNothing) {
  Pool pool(three_gpus(), {});
  EXPECT_FALSE(pool.place(1, wish(0, 9 * kGiB, {"2", "0"})).ok());
  EXPECT_EQ(pool.load(2).jobs, 0u);
  EXPECT_EQ(pool.load(2).reserved_bytes, 0u);
}

TEST(Pool, ReleasingTwiceOrAStrangerChangesNothing) {
  Pool pool(three_gpus(), {});
  ASSERT_TRUE(pool.place(1, wish(1)).ok());
  EXPECT_FALSE(pool.place(1, wish(1)).ok());
  pool.release(1);
  pool.release(1);
  pool.release(99);
  EXPECT_EQ(pool.load(0).jobs, 0u);
}

}  // namespace
}  // namespace fargpu::server
