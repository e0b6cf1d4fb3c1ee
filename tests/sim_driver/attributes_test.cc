#include <gtest/gtest.h>

#include "sim/base/error_names.h"
#include "sim/driver/device.h"

namespace fargpu::sim {
namespace {

TEST(AttributesTest, EveryAttributeIsAnswered) {
  for (int capability : {75, 80, 86, 87, 89, 90, 100, 120}) {
    for (int id = 1; id < CU_DEVICE_ATTRIBUTE_MAX; ++id) {
      int value = -12345;
      EXPECT_EQ(simulated_attribute(id, capability, 0, &value), CUDA_SUCCESS) << id;
      EXPECT_NE(value, -12345) << id;
    }
  }
  int value = 0;
  EXPECT_EQ(simulated_attribute(0, 90, 0, &value), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(simulated_attribute(CU_DEVICE_ATTRIBUTE_MAX, 90, 0, &value), CUDA_ERROR_INVALID_VALUE);
}

TEST(AttributesTest, NothingIsClaimedThatIsNotSimulated) {
  for (int id :
       {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
        CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
        CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED}) {
    int value = -1;
    ASSERT_EQ(simulated_attribute(id, 90, 0, &value), CUDA_SUCCESS);
    EXPECT_EQ(value, 0) << id;
  }
}

TEST(AttributesTest, ClustersAndTensorMapsBeginWithCapability90) {
  for (int id :
       {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED}) {
    int value = -1;
    ASSERT_EQ(simulated_attribute(id, 89, 0, &value), CUDA_SUCCESS);
    EXPECT_EQ(value, 0) << id;
    ASSERT_EQ(simulated_attribute(id, 90, 0, &value), CUDA_SUCCESS);
    EXPECT_EQ(value, 1) << id;
  }
}

TEST(ErrorNamesTest, KnowsTheCodesAndOnlyThem) {
  ASSERT_NE(find_error(CUDA_ERROR_ILLEGAL_ADDRESS), nullptr);
  EXPECT_STREQ(find_error(CUDA_ERROR_ILLEGAL_ADDRESS)->name, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_STREQ(find_error(CUDA_SUCCESS)->text, "no error");
  EXPECT_STREQ(find_error(CUDA_ERROR_UNKNOWN)->name, "CUDA_ERROR_UNKNOWN");
  EXPECT_EQ(find_error(static_cast<CUresult>(12345)), nullptr);
  EXPECT_EQ(find_error(static_cast<CUresult>(9)), nullptr);
}

}  // namespace
}  // namespace fargpu::sim
