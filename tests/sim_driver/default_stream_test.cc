// The rules of the legacy and the per-thread default stream. A stream is held back by a wait for a
// value that the test writes.
#include <memory>
#include <thread>

#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

class DefaultStreamTest : public ContextTest {
 protected:
  // Streams that wait until open() is called.
  void hold(CUstream stream) {
    if (!gate_) gate_ = std::make_unique<PinnedWords>(1);
    OK(cuStreamWaitValue32(stream, gate_->device(), 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  void open() { gate_->store(0, 1); }
  void TearDown() override {
    if (gate_) open();
    cuCtxSynchronize();
    gate_.reset();
    ContextTest::TearDown();
  }
  std::unique_ptr<PinnedWords> gate_;
};

TEST_F(DefaultStreamTest, TheLegacyStreamWaitsForBlockingStreams) {
  PinnedWords out(1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  hold(stream);
  OK(cuMemsetD32Async(out.device(), 1, 1, stream));
  OK(cuMemsetD32Async(out.device(), 2, 1, nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  open();
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(out.load(0), 2u);
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(stream));
}

TEST_F(DefaultStreamTest, BlockingStreamsWaitForTheLegacyStream) {
  PinnedWords out(1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  hold(CU_STREAM_LEGACY);
  OK(cuMemsetD32Async(out.device(), 1, 1, nullptr));
  OK(cuMemsetD32Async(out.device(), 2, 1, stream));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  open();
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(out.load(0), 2u);
}

TEST_F(DefaultStreamTest, NonBlockingStreamsKnowNeitherWay) {
  PinnedWords out(2);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  hold(nullptr);
  OK(cuMemsetD32Async(out.device(0), 1, 1, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(out.load(0), 1u);
  open();
  OK(cuStreamSynchronize(nullptr));
  gate_->store(0, 0);
  hold(stream);
  OK(cuMemsetD32Async(out.device(1), 1, 1, nullptr));
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(out.load(1), 1u);
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  open();
}

TEST_F(DefaultStreamTest, LegacyWaitsForADestroyedStreamToo) {
  PinnedWords out(1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  hold(stream);
  OK(cuMemsetD32Async(out.device(), 1, 1, stream));
  OK(cuStreamDestroy(stream));
  OK(cuMemsetD32Async(out.device(), 2, 1, nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  open();
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(out.load(0), 2u);
}

TEST_F(DefaultStreamTest, ThePerThreadStreamIsABlockingStreamOfItsThread) {
  PinnedWords out(2);
  hold(CU_STREAM_PER_THREAD);
  OK(cuMemsetD32Async(out.device(0), 1, 1, CU_STREAM_PER_THREAD));
  std::thread([&] {
    // Another thread's per-thread stream is another stream.
    EXPECT_CU(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    EXPECT_CU(CUDA_SUCCESS, cuMemsetD32Async(out.device(1), 1, 1, CU_STREAM_PER_THREAD));
    EXPECT_CU(CUDA_SUCCESS, cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_EQ(out.load(1), 1u);
  EXPECT_EQ(out.load(0), 0u);
  OK(cuMemsetD32Async(out.device(0), 2, 1, CU_STREAM_LEGACY));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_LEGACY));
  open();
  OK(cuStreamSynchronize(CU_STREAM_LEGACY));
  EXPECT_EQ(out.load(0), 2u);
}

TEST_F(DefaultStreamTest, SynchronousCopiesJoinTheLegacyStream) {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  const CUdeviceptr p = allocate(4);
  hold(stream);
  OK(cuMemsetD32Async(p, 5, 1, stream));
  std::thread opener([this] { open(); });
  EXPECT_EQ(read_word(p), 5u);
  opener.join();
}

}  // namespace
}  // namespace fargpu::sim_test
