#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST_F(ContextTest, EventsMarkPlacesInStreams) {
  PinnedWords gate(1);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(event));  // never recorded
  OK(cuEventSynchronize(event));
  OK(cuStreamWaitValue32(stream, gate.device(), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuEventRecord(event, stream));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  gate.store(0, 1);
  OK(cuEventSynchronize(event));
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(event));
  OK(cuEventDestroy(event));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(event));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, stream));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(stream, event, 0));
}

TEST_F(ContextTest, AStreamWaitsForAnEventOfAnother) {
  PinnedWords words(2);
  CUstream first = nullptr, second = nullptr;
  CUevent event = nullptr;
  OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamWaitValue32(first, words.device(0), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuMemsetD32Async(words.device(1), 1, 1, first));
  OK(cuEventRecord(event, first));
  OK(cuStreamWaitEvent(second, event, 0));
  OK(cuMemsetD32Async(words.device(1), 2, 1, second));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
  OK(cuEventDestroy(event));  // what was captured stays
  words.store(0, 1);
  OK(cuStreamSynchronize(second));
  EXPECT_EQ(words.load(1), 2u);
}

// Waiting sees the record that was the latest when the wait was submitted.
TEST_F(ContextTest, RecordingAgainDoesNotMoveEarlierWaits) {
  PinnedWords words(1);
  CUstream first = nullptr, second = nullptr;
  CUevent event = nullptr;
  OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, 0));
  OK(cuEventRecord(event, first));
  OK(cuStreamWaitEvent(second, event, 0));
  OK(cuStreamWaitValue32(first, words.device(0), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuEventRecord(event, first));
  OK(cuStreamSynchronize(second));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  words.store(0, 1);
  OK(cuEventSynchronize(event));
}

TEST_F(ContextTest, ElapsedTime) {
  CUevent start = nullptr, end = nullptr, untimed = nullptr, fresh = nullptr;
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&fresh, 0));
  float milliseconds = -1;
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, end));
  PinnedWords gate(1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventRecord(start, stream));
  OK(cuStreamWaitValue32(stream, gate.device(), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuEventRecord(end, stream));
  OK(cuEventRecord(untimed, stream));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&milliseconds, start, end));
  gate.store(0, 1);
  OK(cuStreamSynchronize(stream));
  OK(cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_GT(milliseconds, 0.0f);
  float backwards = 0;
  OK(cuEventElapsedTime(&backwards, end, start));
  EXPECT_EQ(backwards, -milliseconds);
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, untimed));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, fresh, end));
}

TEST_F(ContextTest, EventsOfAnotherContextCannotBeRecordedHere) {
  CUevent event = nullptr;
  OK(cuEventCreate(&event, 0));
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, nullptr));
  EXPECT_CU(CUDA_SUCCESS, cuStreamWaitEvent(nullptr, event, 0));  // but waited for
  OK(cuCtxDestroy(second));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, 0xff0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuEventCreate(nullptr, 0));
  OK(cuEventCreate(&event, 0));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE,
            cuEventRecordWithFlags(event, nullptr, CU_EVENT_RECORD_EXTERNAL));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuEventRecordWithFlags(event, nullptr, 2));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuStreamWaitEvent(nullptr, event, CU_EVENT_WAIT_EXTERNAL));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(nullptr, event, 2));
}

TEST_F(ContextTest, EventsOfAWholeContext) {
  PinnedWords words(2);
  CUstream stream = nullptr, later = nullptr;
  CUevent event = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, 0));
  OK(cuStreamWaitValue32(stream, words.device(0), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuCtxRecordEvent(context_, event));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  OK(cuCtxWaitEvent(context_, event));
  OK(cuStreamCreate(&later, CU_STREAM_NON_BLOCKING));
  OK(cuMemsetD32Async(words.device(1), 1, 1, later));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(later));
  words.store(0, 1);
  OK(cuStreamSynchronize(later));
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(event));
}

// Of an event for other processes, too.
TEST_F(ContextTest, AWaitIsForTheRecordOfItsTime) {
  for (const unsigned flags : {unsigned{CU_EVENT_DISABLE_TIMING},
                               unsigned{CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS}}) {
    PinnedWords gate(1);
    CUstream held = nullptr, idle = nullptr, waiting = nullptr;
    for (CUstream* const stream : {&held, &idle, &waiting})
      OK(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    CUevent event = nullptr;
    OK(cuEventCreate(&event, flags));
    OK(cuStreamWaitValue32(held, gate.device(), 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(event, held));
    OK(cuStreamWaitEvent(waiting, event, 0));
    OK(cuEventRecord(event, idle));
    OK(cuStreamSynchronize(idle));
    EXPECT_CU(CUDA_SUCCESS, cuEventQuery(event));
    EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
    gate.store(0, 1);
    OK(cuStreamSynchronize(waiting));
    OK(cuEventDestroy(event));
    for (CUstream const stream : {held, idle, waiting}) OK(cuStreamDestroy(stream));
  }
}

}  // namespace
}  // namespace fargpu::sim_test
