#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, PeerAccess) {
  int can = 0;
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  OK(cuDeviceCanAccessPeer(&can, 0, 0));
  EXPECT_EQ(can, 0);
  CUdeviceptr p = allocate(64);
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 1));
  OK(cuCtxEnablePeerAccess(context_, 0));
  EXPECT_CU(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(context_, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(second, 0));
  OK(fill(p, 5, 16));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_word(p + 60), 5u);
  OK(cuCtxDisablePeerAccess(context_));
  EXPECT_CU(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(context_));
  OK(fill(p, 6, 16));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  OK(cuCtxDestroy(second));
  module_ = nullptr;
  EXPECT_EQ(read_word(p), 5u);
}

TEST_F(ContextTest, PeerCopies) {
  CUdeviceptr p = allocate(64);
  OK(cuMemsetD32(p, 17, 16));
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 1));
  const CUdeviceptr q = allocate(64);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuCtxPushCurrent(context_));
  OK(cuCtxSynchronize());
  OK(cuCtxPopCurrent(nullptr));
  OK(cuMemcpyPeerAsync(q, second, p, context_, 64, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(q + 60), 17u);
  OK(cuMemcpyPeer(p, context_, q, second, 4));
  OK(cuMemcpyPeer(p, nullptr, q, second, 4));  // a driver takes null for the current one
  OK(cuCtxDestroy(second));
}

}  // namespace
}  // namespace fargpu::sim_test
