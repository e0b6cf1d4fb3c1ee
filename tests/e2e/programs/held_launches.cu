// More launches behind a host function than a driver's queue takes, on its stream and on one that
// waits for it; streams that are not held go on.
#include <atomic>
#include <chrono>
#include <thread>

#include "expect.h"

namespace {

constexpr int kMany = 3000;
std::atomic<bool> may_return{false};

__global__ void add_one(int* value) { *value += 1; }

void CUDART_CB take_a_while(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }

void CUDART_CB wait_for_others(void*) {
  while (!may_return) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

int read(const int* value) {
  int result = -1;
  CHECK(cudaMemcpy(&result, value, sizeof result, cudaMemcpyDeviceToHost));
  return result;
}

}  // namespace

int main() {
  int* values;
  CHECK(cudaMalloc(&values, 3 * sizeof(int)));
  CHECK(cudaMemset(values, 0, 3 * sizeof(int)));
  cudaStream_t held, waiting, free_stream;
  for (cudaStream_t* stream : {&held, &waiting, &free_stream})
    CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));

  CHECK(cudaLaunchHostFunc(held, take_a_while, nullptr));
  for (int i = 0; i < kMany; ++i) add_one<<<1, 1, 0, held>>>(values);
  CHECK(cudaGetLastError());
  CHECK(cudaStreamSynchronize(held));
  EXPECT(read(values) == kMany);

  CHECK(cudaLaunchHostFunc(held, take_a_while, nullptr));
  CHECK(cudaEventRecord(event, held));
  CHECK(cudaStreamWaitEvent(waiting, event, 0));
  for (int i = 0; i < kMany; ++i) add_one<<<1, 1, 0, waiting>>>(values + 1);
  CHECK(cudaStreamSynchronize(waiting));
  EXPECT(read(values + 1) == kMany);

  // The function returns only when another stream has done more than fits into a queue.
  CHECK(cudaLaunchHostFunc(held, wait_for_others, nullptr));
  for (int i = 0; i < kMany; ++i) add_one<<<1, 1, 0, free_stream>>>(values + 2);
  CHECK(cudaStreamSynchronize(free_stream));
  may_return = true;
  CHECK(cudaStreamSynchronize(held));
  EXPECT(read(values + 2) == kMany);
  std::printf("held_launches: right\n");
  return 0;
}
