#include "server/placement/host_placement.h"

#include <gtest/gtest.h>

namespace fargpu::server {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::vector<Unit> three_gpus() {
  return {{"GPU-aaaa1111", "first", 8 * kGiB, {}},
          {"GPU-aaaa2222", "second", 8 * kGiB, {}},
          {"GPU-bbbb3333", "third", 16 * kGiB, {}}};
}

PlacementRequest wish(uint32_t gpus, uint64_t memory = 0, std::vector<std::string> devices = {}) {
  return {gpus, memory, std::move(devices)};
}

using Indices = std::vector<size_t>;

TEST(HostPlacement, SpreadsSessionsOverTheLeastLoaded) {
  HostPlacement host(three_gpus(), {});
  EXPECT_EQ(host.place(1, wish(1))->units, Indices{0});
  EXPECT_EQ(host.place(2, wish(1))->units, Indices{1});
  EXPECT_EQ(host.place(3, wish(1))->units, Indices{2});
  host.release(2);
  EXPECT_EQ(host.place(4, wish(1))->units, Indices{1});
}

TEST(HostPlacement, ReservedMemoryBreaksTies) {
  HostPlacement host(three_gpus(), {});
  ASSERT_TRUE(host.place(1, wish(1, 4 * kGiB, {"0"})).ok());
  ASSERT_TRUE(host.place(2, wish(1, 1 * kGiB, {"1"})).ok());
  ASSERT_TRUE(host.place(3, wish(1, 2 * kGiB, {"2"})).ok());
  EXPECT_EQ(host.place(4, wish(1))->units, Indices{1});
}

TEST(HostPlacement, ZeroGpusMeansOne) {
  HostPlacement host(three_gpus(), {});
  EXPECT_EQ(host.place(1, wish(0))->units.size(), 1u);
}

TEST(HostPlacement, SeveralGpusAreDistinctAndAscending) {
  HostPlacement host(three_gpus(), {});
  ASSERT_TRUE(host.place(1, wish(1, 0, {"0"})).ok());
  EXPECT_EQ(host.place(2, wish(2))->units, (Indices{1, 2}));
  EXPECT_EQ(host.place(3, wish(3))->units, (Indices{0, 1, 2}));
}

TEST(HostPlacement, MoreGpusThanThereAreCanNeverBe) {
  HostPlacement host(three_gpus(), {});
  EXPECT_EQ(host.place(1, wish(4)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(host.jobs(), 0u);
}

TEST(HostPlacement, TakesNamedGpusInTheirOrder) {
  HostPlacement host(three_gpus(), {});
  EXPECT_EQ(host.place(1, wish(0, 0, {"GPU-bbbb3333", "0"}))->units, (Indices{2, 0}));
  EXPECT_EQ(host.place(2, wish(1, 0, {"GPU-b"}))->units, Indices{2});
}

TEST(HostPlacement, RefusesNamesThatMeanNothingOrTwoThings) {
  HostPlacement host(three_gpus(), {});
  for (const auto& devices : std::vector<std::vector<std::string>>{
           {"3"}, {"GPU-cccc"}, {"GPU-aaaa"}, {"GPU-"}, {""}, {"-1"}, {"0", "GPU-aaaa1111"}}) {
    EXPECT_EQ(host.place(1, wish(0, 0, devices)).status().code(), StatusCode::kInvalidArgument)
        << devices[0];
  }
  EXPECT_EQ(host.place(1, wish(3, 0, {"0", "1"})).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(host.load(0).jobs, 0u);
}

TEST(HostPlacement, ReservesMemoryAndGivesItBack) {
  HostPlacement host(three_gpus(), {});
  ASSERT_TRUE(host.place(1, wish(1, 6 * kGiB, {"0"})).ok());
  EXPECT_EQ(host.load(0).reserved_bytes, 6 * kGiB);
  EXPECT_EQ(host.place(2, wish(1, 3 * kGiB, {"0"})).status().code(), StatusCode::kNoCapacity);
  EXPECT_EQ(host.place(3, wish(1, 2 * kGiB, {"0"}))->units, Indices{0});
  host.release(1);
  EXPECT_EQ(host.place(4, wish(1, 6 * kGiB, {"0"}))->units, Indices{0});
}

TEST(HostPlacement, EachJobsContextHasItsPlaceBesideReservedMemory) {
  auto units = three_gpus();
  units[0].context_bytes = kGiB;
  HostPlacement host(units, {});
  EXPECT_EQ(host.place(1, wish(1, 8 * kGiB, {"0"})).status().code(), StatusCode::kNoCapacity);
  ASSERT_TRUE(host.place(1, wish(1, 3 * kGiB, {"0"})).ok());
  ASSERT_TRUE(host.place(2, wish(1, 0, {"0"})).ok());
  EXPECT_EQ(host.place(3, wish(1, 3 * kGiB, {"0"})).status().code(), StatusCode::kNoCapacity);
  ASSERT_TRUE(host.place(3, wish(1, 2 * kGiB, {"0"})).ok());
  EXPECT_EQ(host.place(4, wish(1, 1, {"0"})).status().code(), StatusCode::kNoCapacity);
  for (const uint64_t job : {1, 2, 3}) host.release(job);
  EXPECT_TRUE(host.place(4, wish(1, 7 * kGiB, {"0"})).ok());
}

TEST(HostPlacement, AContextLargerThanItsGpuLeavesNothing) {
  HostPlacement host({{"GPU-aaaa1111", "first", kGiB, {}, 2 * kGiB}}, {});
  EXPECT_EQ(host.place(1, wish(1, 1)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(host.place(1, wish(1)).ok());
}

TEST(HostPlacement, MemoryThatNoGpuHasCanNeverBe) {
  HostPlacement host(three_gpus(), {});
  EXPECT_EQ(host.place(1, wish(1, 17 * kGiB)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(host.place(1, wish(1, 16 * kGiB))->units, Indices{2});
}

TEST(HostPlacement, OversubscriptionGoesBeyondTheGpuButNotForOneSession) {
  PlacementLimits limits;
  limits.oversubscribe_memory = true;
  HostPlacement host(three_gpus(), limits);
  ASSERT_TRUE(host.place(1, wish(1, 8 * kGiB, {"0"})).ok());
  EXPECT_TRUE(host.place(2, wish(1, 8 * kGiB, {"0"})).ok());
  EXPECT_EQ(host.load(0).reserved_bytes, 16 * kGiB);
  EXPECT_EQ(host.place(3, wish(1, 17 * kGiB)).status().code(), StatusCode::kInvalidArgument);
}

TEST(HostPlacement, LimitsSessionsInAllAndPerGpu) {
  PlacementLimits limits;
  limits.max_sessions = 4;
  limits.max_sessions_per_gpu = 2;
  HostPlacement host(three_gpus(), limits);
  ASSERT_TRUE(host.place(1, wish(1, 0, {"0"})).ok());
  ASSERT_TRUE(host.place(2, wish(1, 0, {"0"})).ok());
  EXPECT_EQ(host.place(3, wish(1, 0, {"0"})).status().code(), StatusCode::kNoCapacity);
  ASSERT_TRUE(host.place(4, wish(1)).ok());
  ASSERT_TRUE(host.place(5, wish(1)).ok());
  EXPECT_EQ(host.place(6, wish(1)).status().code(), StatusCode::kNoCapacity);
  host.release(1);
  EXPECT_TRUE(host.place(7, wish(1)).ok());
}

TEST(HostPlacement, AFailedPlacementReservesNothing) {
  HostPlacement host(three_gpus(), {});
  EXPECT_FALSE(host.place(1, wish(0, 9 * kGiB, {"2", "0"})).ok());
  EXPECT_EQ(host.load(2).jobs, 0u);
  EXPECT_EQ(host.load(2).reserved_bytes, 0u);
}

TEST(HostPlacement, ReleasingTwiceOrAStrangerChangesNothing) {
  HostPlacement host(three_gpus(), {});
  ASSERT_TRUE(host.place(1, wish(1)).ok());
  EXPECT_FALSE(host.place(1, wish(1)).ok());
  host.release(1);
  host.release(1);
  host.release(99);
  EXPECT_EQ(host.load(0).jobs, 0u);
}

TEST(HostPlacement, AGrantIsWhatItsWorkersSee) {
  HostPlacement host(three_gpus(), {});
  const auto grant = host.place(1, wish(2, 1 * kGiB, {"2", "0"}));
  ASSERT_TRUE(grant.ok());
  EXPECT_EQ(grant->memory_bytes, 1 * kGiB);
  EXPECT_EQ(grant->environment,
            (Grant::Environment{{"CUDA_VISIBLE_DEVICES", "GPU-bbbb3333,GPU-aaaa1111"}}));
  EXPECT_FALSE(grant->ends.has_value());
}

TEST(HostPlacement, PreviewsAlsoWithoutRoomAndChangesNothing) {
  HostPlacement host(three_gpus(), {.max_sessions = 2, .max_sessions_per_gpu = 1});
  ASSERT_TRUE(host.place(1, wish(1)).ok());
  ASSERT_TRUE(host.place(2, wish(1)).ok());
  ASSERT_FALSE(host.place(3, wish(1)).ok());
  const auto grant = host.preview(wish(1, 1 * kGiB));
  ASSERT_TRUE(grant.ok());
  EXPECT_EQ(grant->units, std::vector<size_t>{2});
  EXPECT_EQ(grant->memory_bytes, 1 * kGiB);
  EXPECT_EQ(host.preview(wish(3))->units, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(host.preview(wish(1, 0, {"1"}))->units, std::vector<size_t>{1});
  EXPECT_EQ(host.preview(wish(4)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(host.load(2).jobs, 0u);
  EXPECT_EQ(host.jobs(), 2u);
}

TEST(HostPlacement, TellsWhetherRoomWouldBeWithoutOthersAndChangesNothing) {
  HostPlacement host(three_gpus(), {.max_sessions_per_gpu = 1});
  for (const uint64_t job : {1, 2, 3}) ASSERT_TRUE(host.place(job, wish(1)).ok());
  EXPECT_FALSE(host.fits_without({}, wish(1)));
  const std::vector<uint64_t> one{2}, two{2, 3};
  EXPECT_TRUE(host.fits_without(one, wish(1)));
  EXPECT_FALSE(host.fits_without(one, wish(2)));
  EXPECT_TRUE(host.fits_without(two, wish(2)));
  EXPECT_EQ(host.jobs(), 3u);
  EXPECT_EQ(host.load(1).jobs, 1u);
}

}  // namespace
}  // namespace fargpu::server
