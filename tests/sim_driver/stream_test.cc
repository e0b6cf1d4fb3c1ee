#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, WorkOfOneStreamRunsInOrder) {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr p = allocate(4);
  for (uint32_t i = 1; i <= 200; ++i) OK(cuMemsetD32Async(p, i, 1, stream));
  uint32_t last = 0;
  OK(cuMemcpyDtoHAsync(&last, p, 4, stream));
  EXPECT_EQ(last, 200u);
}

TEST_F(ContextTest, StreamsAreAsynchronousAndIndependent) {
  PinnedWords words(2);
  CUstream held = nullptr, free = nullptr;
  OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
  OK(cuStreamWaitValue32(held, words.device(0), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuMemsetD32Async(words.device(1), 7, 1, held));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
  const CUdeviceptr p = allocate(4);
  OK(cuMemsetD32Async(p, 3, 1, free));
  OK(cuStreamSynchronize(free));
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(free));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
  EXPECT_EQ(words.load(1), 0u);
  words.store(0, 1);
  OK(cuStreamSynchronize(held));
  EXPECT_EQ(words.load(1), 7u);
}

TEST_F(ContextTest, ADestroyedStreamFinishesItsWork) {
  PinnedWords words(2);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, 0));
  OK(cuStreamWaitValue32(stream, words.device(0), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuMemsetD32Async(words.device(1), 7, 1, stream));
  OK(cuStreamDestroy(stream));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(stream));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
  words.store(0, 1);
  OK(cuCtxSynchronize());
  EXPECT_EQ(words.load(1), 7u);
}

TEST_F(ContextTest, WhatAStreamKnowsOfItself) {
  CUstream stream = nullptr;
  OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -99));
  unsigned flags = 0;
  int priority = 0, least = 1, greatest = 1;
  unsigned long long id = 0, other = 0;
  CUcontext owner = nullptr;
  OK(cuStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  OK(cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, greatest);
  OK(cuStreamGetId(stream, &id));
  OK(cuStreamGetId(nullptr, &other));
  EXPECT_NE(id, other);
  OK(cuStreamGetCtx(stream, &owner));
  EXPECT_EQ(owner, context_);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamGetId(stream, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 99));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(nullptr, 0));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  OK(cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(ContextTest, StreamAttributes) {
  CUstream first = nullptr, second = nullptr;
  OK(cuStreamCreate(&first, 0));
  OK(cuStreamCreate(&second, 0));
  CUstreamAttrValue value{};
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  OK(cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  OK(cuStreamCopyAttributes(second, first));
  value = {};
  OK(cuStreamGetAttribute(second, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT_EQ(value.syncPolicy, CU_SYNC_POLICY_YIELD);
  value.syncPolicy = static_cast<CUsynchronizationPolicy>(99);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
}

}  // namespace
}  // namespace fargpu::sim_test
