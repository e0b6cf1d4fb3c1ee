#include <atomic>
#include <thread>

#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

constexpr int kThreads = 8;

template <typename Body>
void in_threads(Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&body, i] { body(i); });
  for (auto& thread : threads) thread.join();
}

TEST_F(ContextTest, ManyThreadsLaunchAtOnce) {
  CUfunction bump = function("bump");
  in_threads([this, bump](int number) {
    EXPECT_CU(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    CUstream stream = nullptr;
    EXPECT_CU(CUDA_SUCCESS, cuStreamCreate(&stream, number % 2 == 0 ? 0 : CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 20; ++i) EXPECT_CU(CUDA_SUCCESS, launch(bump, 4, {}, stream));
    EXPECT_CU(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EXPECT_CU(CUDA_SUCCESS, cuStreamDestroy(stream));
  });
  CUdeviceptr counter = 0;
  OK(cuModuleGetGlobal(&counter, nullptr, module_, "counter"));
  EXPECT_EQ(read_word(counter), 40u + kThreads * 20 * 4);
}

TEST_F(ContextTest, ManyThreadsAllocateCopyAndFree) {
  size_t before = 0, after = 0;
  OK(cuMemGetInfo(&before, nullptr));
  in_threads([this](int number) {
    EXPECT_CU(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    for (uint32_t i = 0; i < 30; ++i) {
      CUdeviceptr p = 0;
      EXPECT_CU(CUDA_SUCCESS, cuMemAlloc(&p, 1000 + i * 100));
      uint32_t in = static_cast<uint32_t>(number) * 1000 + i, out = 0;
      EXPECT_CU(CUDA_SUCCESS, cuMemcpyHtoD(p + 100, &in, 4));
      EXPECT_CU(CUDA_SUCCESS, cuMemcpyDtoH(&out, p + 100, 4));
      EXPECT_EQ(in, out);
      EXPECT_CU(CUDA_SUCCESS, cuMemFree(p));
    }
  });
  OK(cuMemGetInfo(&after, nullptr));
  EXPECT_EQ(before, after);
}

// What one thread submits after another thread's call returned sees its effects.
TEST_F(ContextTest, OrderAcrossThreads) {
  const CUdeviceptr p = allocate(4);
  for (uint32_t i = 0; i < 50; ++i) {
    std::thread([&] {
      EXPECT_CU(CUDA_SUCCESS, cuCtxSetCurrent(context_));
      EXPECT_CU(CUDA_SUCCESS, cuMemsetD32Async(p, i, 1, nullptr));
    }).join();
    EXPECT_EQ(read_word(p), i);
  }
}

TEST_F(ContextTest, ManyThreadsMakeAndDestroyContexts) {
  in_threads([](int number) {
    for (int i = 0; i < 5; ++i) {
      CUcontext context = nullptr;
      EXPECT_CU(CUDA_SUCCESS, cuCtxCreate(&context, nullptr, 0, number % 2));
      CUdeviceptr p = 0;
      EXPECT_CU(CUDA_SUCCESS, cuMemAlloc(&p, 4096));
      EXPECT_CU(CUDA_SUCCESS, cuMemsetD8Async(p, 1, 4096, nullptr));
      EXPECT_CU(CUDA_SUCCESS, cuCtxDestroy(context));
    }
  });
}

TEST_F(ContextTest, EventsAndWaitsBetweenThreads) {
  const CUdeviceptr p = allocate(kThreads * 4);
  CUevent event = nullptr;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  in_threads([this, p, event](int number) {
    EXPECT_CU(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    CUstream stream = nullptr;
    EXPECT_CU(CUDA_SUCCESS, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 30; ++i) {
      EXPECT_CU(CUDA_SUCCESS, cuStreamWaitEvent(stream, event, 0));
      EXPECT_CU(CUDA_SUCCESS,
                cuMemsetD32Async(p + 4 * static_cast<CUdeviceptr>(number), 1, 1, stream));
      EXPECT_CU(CUDA_SUCCESS, cuEventRecord(event, stream));
    }
    EXPECT_CU(CUDA_SUCCESS, cuEventSynchronize(event));
    EXPECT_CU(CUDA_SUCCESS, cuStreamSynchronize(stream));
  });
  std::vector<uint32_t> out(kThreads);
  OK(cuMemcpyDtoH(out.data(), p, out.size() * 4));
  for (uint32_t word : out) EXPECT_EQ(word, 1u);
}

TEST_F(ContextTest, ADestroyedHandleIsAnErrorInEveryThread) {
  CUevent event = nullptr;
  CUstream stream = nullptr;
  OK(cuEventCreate(&event, 0));
  OK(cuStreamCreate(&stream, 0));
  std::atomic<int> destroyed{0};
  in_threads([&, this](int) {
    EXPECT_CU(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    for (int i = 0; i < 20; ++i) {
      cuEventRecord(event, stream);
      cuEventQuery(event);
      cuStreamQuery(stream);
    }
    if (cuEventDestroy(event) == CUDA_SUCCESS) ++destroyed;
    if (cuStreamDestroy(stream) == CUDA_SUCCESS) ++destroyed;
  });
  EXPECT_EQ(destroyed, 2);
}

}  // namespace
}  // namespace fargpu::sim_test
