#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, WhatPointersAre) {
  const CUdeviceptr p = allocate(1000);
  PinnedWords words(16);
  CUmemorytype type{};
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 999));
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, words.device()));
  EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 1000));
  CUcontext of = nullptr;
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, p));
  EXPECT_EQ(of, context_);
  CUdeviceptr start = 0;
  size_t bytes = 0;
  int ordinal = -1;
  void* host = nullptr;
  OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 500));
  OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 500));
  OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p + 500));
  EXPECT_EQ(start, p);
  EXPECT_EQ(bytes, 1000u);
  EXPECT_EQ(ordinal, 0);
  OK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, words.device(2)));
  EXPECT_EQ(host, words.data() + 2);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&host, static_cast<CUpointer_attribute>(99), p));
}

TEST_F(ContextTest, SeveralAttributesAtOnce) {
  const CUdeviceptr p = allocate(1000);
  CUmemorytype type{};
  int ordinal = 0;
  CUdeviceptr device = 1;
  void* host = this;
  CUpointer_attribute which[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* data[] = {&type, &ordinal, &device, &host};
  OK(cuPointerGetAttributes(4, which, data, p + 5));
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(device, p + 5);
  EXPECT_EQ(host, nullptr);
  int pageable = 0;
  OK(cuPointerGetAttributes(4, which, data, reinterpret_cast<CUdeviceptr>(&pageable)));
  EXPECT_EQ(static_cast<int>(type), 0);
  EXPECT_EQ(ordinal, -2);
  EXPECT_EQ(device, 0u);
  which[0] = static_cast<CUpointer_attribute>(99);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(4, which, data, p));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(0, which, data, p));
}

TEST_F(ContextTest, BufferIdsAndSyncMemops) {
  const CUdeviceptr p = allocate(64), q = allocate(64);
  unsigned long long first = 0, second = 0, inside = 0;
  OK(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
  OK(cuPointerGetAttribute(&inside, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + 63));
  OK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, q));
  EXPECT_EQ(first, inside);
  EXPECT_NE(first, second);
  unsigned on = 1, off = 0, value = 7;
  OK(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  EXPECT_EQ(value, 0u);
  // Set unless somebody has cleared it, as on an H200 with driver 580.
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, q));
  EXPECT_EQ(value, 1u);
  OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  EXPECT_EQ(value, 1u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 16));
}

}  // namespace
}  // namespace fargpu::sim_test
