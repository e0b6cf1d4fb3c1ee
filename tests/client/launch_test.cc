#include "client/image/launch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace fargpu::client {
namespace {

Device device() {
  Device device;
  device.set(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024);
  device.set(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024);
  device.set(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024);
  device.set(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64);
  device.set(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX);
  device.set(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535);
  device.set(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535);
  device.set(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536);
  return device;
}

class LaunchCheck : public testing::Test {
 protected:
  LaunchCheck() {
    int values[kFunctionAttributes] = {};
    values[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 512;
    values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 48 << 10;
    values[CU_FUNC_ATTRIBUTE_NUM_REGS] = 120;
    attributes_ = function_.remember(0, values);
  }
  CUresult check(const LaunchShape& shape) {
    return check_launch(shape, device_, function_, *attributes_);
  }
  Device device_ = device();
  Function function_;
  FunctionAttributes* attributes_;
};

TEST_F(LaunchCheck, LimitsOfTheDevice) {
  EXPECT_EQ(check({{1, 1, 1}, {1, 1, 1}}), CUDA_SUCCESS);
  EXPECT_EQ(check({{0, 1, 1}, {1, 1, 1}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check({{1, 1, 1}, {1, 0, 1}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check({{1, 65536, 1}, {1, 1, 1}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check({{INT32_MAX, 1, 1}, {1, 1, 1}}), CUDA_SUCCESS);
  EXPECT_EQ(check({{1, 1, 1}, {1, 1, 65}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check({{1, 1, 1}, {1025, 1, 1}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check({{1, 1, 1}, {64, 64, 1}}), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchCheck, LimitsOfTheFunction) {
  EXPECT_EQ(check({{1, 1, 1}, {512, 1, 1}}), CUDA_SUCCESS);
  EXPECT_EQ(check({{1, 1, 1}, {544, 1, 1}}), CUDA_ERROR_INVALID_VALUE);            // its own bound
  EXPECT_EQ(check({{1, 1, 1}, {545, 1, 1}}), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);  // registers
  EXPECT_EQ(check({{1, 1, 1}, {1, 1, 1}, 48 << 10}), CUDA_SUCCESS);
  EXPECT_EQ(check({{1, 1, 1}, {1, 1, 1}, (48 << 10) + 1}), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchCheck, RequiredBlock) {
  function_.required_block = {64, 2, 1};
  EXPECT_EQ(check({{1, 1, 1}, {64, 2, 1}}), CUDA_SUCCESS);
  EXPECT_EQ(check({{1, 1, 1}, {128, 1, 1}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check({{1, 1, 1}, {64, 2, 2}}), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchCheck, WholeClusters) {
  (*attributes_)[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = 2;
  (*attributes_)[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] = 3;
  (*attributes_)[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] = 1;
  EXPECT_EQ(check({{4, 3, 5}, {1, 1, 1}}), CUDA_SUCCESS);
  EXPECT_EQ(check({{3, 3, 1}, {1, 1, 1}}), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(check({{4, 4, 1}, {1, 1, 1}}), CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

class Parameters : public testing::Test {
 protected:
  Parameters() {
    function_.parameters = {{0, 8}, {8, 4}, {16, 8}};
    function_.parameter_bytes = 24;
  }
  Function function_;
  std::byte buffer_[24];
  std::span<const std::byte> packed_;
};

TEST_F(Parameters, PackedByLayoutWithZeroGaps) {
  uint64_t a = 0x1111111111111111, c = 0x3333333333333333;
  uint32_t b = 0x22222222;
  void* params[] = {&a, &b, &c};
  std::memset(buffer_, 0xff, sizeof buffer_);
  ASSERT_EQ(pack_parameters(function_, params, nullptr, buffer_, &packed_), CUDA_SUCCESS);
  ASSERT_EQ(packed_.size(), 24u);
  EXPECT_EQ(std::memcmp(packed_.data(), &a, 8), 0);
  EXPECT_EQ(std::memcmp(packed_.data() + 8, &b, 4), 0);
  EXPECT_EQ(std::to_integer<int>(packed_[12]), 0);
  EXPECT_EQ(std::memcmp(packed_.data() + 16, &c, 8), 0);
}

TEST_F(Parameters, Extra) {
  char own[24] = {1, 2, 3};
  size_t size = sizeof own;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, own, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  ASSERT_EQ(pack_parameters(function_, nullptr, extra, buffer_, &packed_), CUDA_SUCCESS);
  ASSERT_EQ(packed_.size(), 24u);
  EXPECT_NE(static_cast<const void*>(packed_.data()), own);  // it may be managed memory
  EXPECT_EQ(std::memcmp(packed_.data(), own, 24), 0);
  size = 25;
  EXPECT_EQ(pack_parameters(function_, nullptr, extra, buffer_, &packed_),
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  size = 0;
  EXPECT_EQ(pack_parameters(function_, nullptr, extra, buffer_, &packed_),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Parameters, AShortBufferIsFilledWithZeros) {
  const char own[32] = {1, 2, 3};
  size_t size = 2;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<char*>(own),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  std::memset(buffer_, 0xff, sizeof buffer_);
  ASSERT_EQ(pack_parameters(function_, nullptr, extra, buffer_, &packed_), CUDA_SUCCESS);
  const std::byte expected[24] = {std::byte{1}, std::byte{2}};
  ASSERT_EQ(packed_.size(), 24u);
  EXPECT_EQ(std::memcmp(packed_.data(), expected, 24), 0);
}

TEST_F(Parameters, Wrong) {
  uint64_t a = 0;
  void* params[] = {&a, nullptr, &a};
  void* end[] = {CU_LAUNCH_PARAM_END};
  size_t size = 4;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  EXPECT_EQ(pack_parameters(function_, nullptr, nullptr, buffer_, &packed_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pack_parameters(function_, params, nullptr, buffer_, &packed_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pack_parameters(function_, params, end, buffer_, &packed_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pack_parameters(function_, nullptr, extra, buffer_, &packed_),
            CUDA_ERROR_INVALID_VALUE);
  params[1] = &a;
  EXPECT_EQ(pack_parameters(function_, params, extra, buffer_, &packed_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pack_parameters(function_, params, end, buffer_, &packed_), CUDA_SUCCESS);
  EXPECT_EQ(pack_parameters(function_, nullptr, end, buffer_, &packed_), CUDA_ERROR_INVALID_VALUE);
}

TEST(ParameterLess, NeedsNothing) {
  Function function;
  std::span<const std::byte> packed;
  EXPECT_EQ(pack_parameters(function, nullptr, nullptr, nullptr, &packed), CUDA_SUCCESS);
  EXPECT_TRUE(packed.empty());
}

TEST(FunctionRecord, FirstAttributesCount) {
  Function function;
  int first[kFunctionAttributes] = {1}, second[kFunctionAttributes] = {2};
  EXPECT_EQ(function.on_device(3), nullptr);
  FunctionAttributes* kept = function.remember(3, first);
  EXPECT_EQ(function.remember(3, second), kept);
  EXPECT_EQ((*function.on_device(3))[0].load(), 1);
  EXPECT_EQ(function.remember(-1, first), nullptr);
  EXPECT_EQ(function.remember(1000, first), nullptr);
}

TEST(DeviceAttributes, WhatCannotWorkIsHidden) {
  Device device;
  device.set(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 1);
  device.set(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 1);
  device.set(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32);
  device.set(-1, 7);
  device.set(100000, 7);
  device.hide_what_does_not_work();
  EXPECT_EQ(device.attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS), 0);
  EXPECT_EQ(device.attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED), 0);
  EXPECT_EQ(device.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  // What the driver does not report is not invented.
  EXPECT_FALSE(device.known.test(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED));
}

}  // namespace
}  // namespace fargpu::client
