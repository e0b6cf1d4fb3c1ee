// Host functions and stream callbacks run here, in stream order, and see what the copies before
// them brought.
#include <vector>

#include "expect.h"

struct Record {
  const int* value;
  std::vector<int>* log;
};

__global__ void set(int* value, int to) { *value = to; }

void note(void* argument) {
  auto* record = static_cast<Record*>(argument);
  record->log->push_back(*record->value);
}

void CUDART_CB note_with_status(cudaStream_t, cudaError_t status, void* argument) {
  if (status == cudaSuccess) note(argument);
}

int main() {
  int *device, *host;
  CHECK(cudaMalloc(&device, sizeof(int)));
  CHECK(cudaMallocHost(&host, sizeof(int)));
  cudaStream_t stream, waiting;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamCreate(&waiting));
  std::vector<int> log, want;
  Record record{host, &log};
  for (int i = 0; i < 12; ++i) {
    set<<<1, 1, 0, stream>>>(device, i * i);
    CHECK(cudaMemcpyAsync(host, device, sizeof(int), cudaMemcpyDeviceToHost, stream));
    if (i % 2 == 0) {
      CHECK(cudaLaunchHostFunc(stream, note, &record));
    } else {
      CHECK(cudaStreamAddCallback(stream, note_with_status, &record, 0));
    }
    want.push_back(i * i);
  }
  // Another stream that waits for an event after the callbacks.
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaStreamWaitEvent(waiting, event, 0));
  Record last{host, &log};
  CHECK(cudaLaunchHostFunc(waiting, note, &last));
  want.push_back(121);
  CHECK(cudaStreamSynchronize(waiting));
  EXPECT(log == want);
  CHECK(cudaStreamSynchronize(stream));
  std::printf("callbacks: right\n");
  return 0;
}
