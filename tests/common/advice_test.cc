#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "common/advice/range_advice.h"

namespace fargpu::advice {
namespace {

constexpr uint64_t kPage = 4096;

int get(const RangeAdvice& advice, uint64_t from, uint64_t until, CUmem_range_attribute attribute) {
  int value = 1234;
  EXPECT_EQ(advice.get(from, until, attribute, &value, sizeof value), CUDA_SUCCESS);
  return value;
}

CUmemLocation place(CUmemLocationType type, int id = 0) {
  CUmemLocation location{};
  location.type = type;
  location.id = id;
  return location;
}

TEST(RangeAdvice, NothingIsAdvisedAtFirst) {
  const RangeAdvice advice;
  EXPECT_EQ(get(advice, 0, kPage, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
  EXPECT_EQ(get(advice, 0, kPage, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), CU_DEVICE_INVALID);
  EXPECT_EQ(get(advice, 0, kPage, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY), CU_DEVICE_INVALID);
  EXPECT_EQ(get(advice, 0, kPage, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION),
            CU_DEVICE_INVALID);
}

TEST(RangeAdvice, HoldsForWholePagesAndOnlyWhereAllAgree) {
  RangeAdvice advice;
  const CUmemLocation gpu = place(CU_MEM_LOCATION_TYPE_DEVICE, 1);
  EXPECT_EQ(advice.advise(kPage + 5, kPage + 6, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu, 2),
            CUDA_SUCCESS);
  EXPECT_EQ(get(advice, kPage, 2 * kPage, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 1);
  EXPECT_EQ(get(advice, kPage - 1, 2 * kPage, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
  EXPECT_EQ(get(advice, kPage, 2 * kPage + 1, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
  EXPECT_EQ(advice.advise(0, 3 * kPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, gpu, 2),
            CUDA_SUCCESS);
  EXPECT_EQ(get(advice, 0, 3 * kPage, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), 1);
  EXPECT_EQ(get(advice, 0, 3 * kPage, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE),
            CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(advice.advise(0, kPage, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, gpu, 2), CUDA_SUCCESS);
  EXPECT_EQ(get(advice, 0, 3 * kPage, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION),
            CU_DEVICE_INVALID);
}

TEST(RangeAdvice, AccessedByListsWhatAllPagesHave) {
  RangeAdvice advice;
  const auto set = [&](uint64_t until, const CUmemLocation& location) {
    EXPECT_EQ(advice.advise(0, until, CU_MEM_ADVISE_SET_ACCESSED_BY, location, 2), CUDA_SUCCESS);
  };
  set(2 * kPage, place(CU_MEM_LOCATION_TYPE_DEVICE, 1));
  set(kPage, place(CU_MEM_LOCATION_TYPE_HOST));
  std::array<int, 3> devices{};
  EXPECT_EQ(advice.get(0, kPage, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, devices.data(), 12),
            CUDA_SUCCESS);
  EXPECT_EQ(devices, (std::array<int, 3>{1, CU_DEVICE_CPU, CU_DEVICE_INVALID}));
  EXPECT_EQ(advice.get(0, 2 * kPage, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, devices.data(), 12),
            CUDA_SUCCESS);
  EXPECT_EQ(devices, (std::array<int, 3>{1, CU_DEVICE_INVALID, CU_DEVICE_INVALID}));
  EXPECT_EQ(advice.get(0, kPage, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, devices.data(), 3),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(RangeAdvice, RefusesWhatIsNone) {
  RangeAdvice advice;
  const CUmemLocation gpu = place(CU_MEM_LOCATION_TYPE_DEVICE, 2);
  for (const auto what : {CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_SET_ACCESSED_BY}) {
    EXPECT_EQ(advice.advise(0, 1, what, gpu, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(advice.advise(0, 1, what, 2, 2), CUDA_ERROR_INVALID_DEVICE);
  }
  // No place is needed to take one away.
  EXPECT_EQ(advice.advise(0, 1, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, gpu, 2), CUDA_SUCCESS);
  EXPECT_EQ(advice.advise(0, 1, static_cast<CUmem_advise>(7), gpu, 3), CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  EXPECT_EQ(advice.get(0, 1, static_cast<CUmem_range_attribute>(99), &value, 4),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advice.get(0, 1, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, &value, 8),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(RangeAdvice, TellsWhereMemoryWasPrefetchedTo) {
  RangeAdvice advice;
  const auto expect = [&](int device, int type, int id) {
    const std::pair<CUmem_range_attribute, int> expected[] = {
        {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, device},
        {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, type},
        {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, id}};
    for (const auto& [attribute, value] : expected) {
      int found = 77;
      EXPECT_EQ(advice.get(0, kPage, attribute, &found, 4), CUDA_SUCCESS);
      EXPECT_EQ(found, value) << attribute;
    }
  };
  expect(CU_DEVICE_INVALID, CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID);
  advice.prefetched(0, kPage, place(CU_MEM_LOCATION_TYPE_DEVICE, 1));
  expect(1, CU_MEM_LOCATION_TYPE_DEVICE, 1);
  advice.prefetched(0, kPage, place(CU_MEM_LOCATION_TYPE_HOST));
  expect(CU_DEVICE_CPU, CU_MEM_LOCATION_TYPE_HOST, CU_DEVICE_CPU);
  advice.prefetched(0, kPage, place(CU_MEM_LOCATION_TYPE_HOST), /*as_given=*/true);
  expect(CU_DEVICE_CPU, CU_MEM_LOCATION_TYPE_HOST, 0);
  advice.prefetched(0, kPage, place(CU_MEM_LOCATION_TYPE_HOST_NUMA));
  expect(CU_DEVICE_CPU, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
}

TEST(Prefetches, RangesFindTheirPlaces) {
  const CUmemLocation places[] = {place(CU_MEM_LOCATION_TYPE_DEVICE, 0),
                                  place(CU_MEM_LOCATION_TYPE_HOST)};
  const size_t firsts[] = {0, 2}, late[] = {1, 2}, falling[] = {0, 0};
  const Prefetches prefetches{places, firsts, 2};
  EXPECT_EQ(prefetches.check(3, 1), CUDA_SUCCESS);
  EXPECT_EQ(prefetches.of(1).type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(prefetches.of(2).type, CU_MEM_LOCATION_TYPE_HOST);
  EXPECT_EQ(prefetches.check(2, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetches.check(3, 0), CUDA_ERROR_INVALID_VALUE);  // a device that is not there
  EXPECT_EQ((Prefetches{places, late, 2}.check(3, 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ((Prefetches{places, falling, 2}.check(3, 1)), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace fargpu::advice
