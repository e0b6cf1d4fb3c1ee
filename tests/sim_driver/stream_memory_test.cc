#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, WaitsForValuesByEveryCondition) {
  PinnedWords words(2);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto waits_until = [&](unsigned condition, uint32_t value, uint32_t no, uint32_t yes) {
    words.store(0, no);
    OK(cuStreamWaitValue32(stream, words.device(0), value, condition));
    EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    words.store(0, yes);
    OK(cuStreamSynchronize(stream));
  };
  waits_until(CU_STREAM_WAIT_VALUE_EQ, 5, 4, 5);
  waits_until(CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6);
  waits_until(CU_STREAM_WAIT_VALUE_GEQ, 0xfffffff0u, 0xffffffefu,
              3);  // the comparison wraps around
  waits_until(CU_STREAM_WAIT_VALUE_AND, 6, 1, 4);
  waits_until(CU_STREAM_WAIT_VALUE_NOR, 0xffff0000u, 0x0000ffffu, 0x0000fffeu);
}

TEST_F(ContextTest, WritesValuesAndWholeBatches) {
  PinnedWords words(8);
  OK(cuStreamWriteValue32(nullptr, words.device(0), 11, 0));
  OK(cuStreamWriteValue64(nullptr, words.device(2), 0x0000000100000002ull, 0));
  CUstreamBatchMemOpParams batch[3] = {};
  batch[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  batch[0].waitValue.address = words.device(0);
  batch[0].waitValue.value = 11;
  batch[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  batch[1].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
  batch[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  batch[2].writeValue.address = words.device(4);
  batch[2].writeValue.value64 = 0x0000000300000004ull;
  OK(cuStreamBatchMemOp(nullptr, 3, batch, 0));
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(words.load(0), 11u);
  EXPECT_EQ(words.load(2), 2u);
  EXPECT_EQ(words.load(3), 1u);
  EXPECT_EQ(words.load(4), 4u);
  EXPECT_EQ(words.load(5), 3u);
  batch[1].operation = static_cast<CUstreamBatchMemOpType>(77);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(nullptr, 3, batch, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(nullptr, 257, batch, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(nullptr, words.device(0) + 2, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(nullptr, 0x1000, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(nullptr, words.device(0), 1, 9));
}

// Nobody will ever write the value: destroying the context gives the wait up.
TEST_F(ContextTest, DestroyingAContextEndsItsWaits) {
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 0));
  PinnedWords words(1);
  OK(cuStreamWaitValue32(nullptr, words.device(0), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuCtxDestroy(second));
}

}  // namespace
}  // namespace fargpu::sim_test
