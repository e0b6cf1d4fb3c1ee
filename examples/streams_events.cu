// A pipeline over streams: pinned memory, async copies, events that one stream records and another
// waits for, timing.
#include <vector>

#include "check.h"

__global__ void step(int* data, int n, int factor, int summand) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = data[i] * factor + summand;
}

int main() {
  const int chunks = 4, n = 20000, rounds = 5;
  int* host;
  CHECK(cudaMallocHost(&host, chunks * n * sizeof(int)));
  for (int i = 0; i < chunks * n; ++i) host[i] = i % 100;

  std::vector<int*> data(chunks);
  std::vector<cudaStream_t> streams(chunks);
  std::vector<cudaEvent_t> done(chunks);
  for (int c = 0; c < chunks; ++c) {
    CHECK(cudaStreamCreateWithFlags(&streams[c], cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&done[c], cudaEventDisableTiming));
    CHECK(cudaMalloc(&data[c], n * sizeof(int)));
  }
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(begin, streams[0]));

  // Chunk c is uploaded in stream c; then every round moves it to the next stream, which must wait
  // for the one before.
  for (int c = 0; c < chunks; ++c) {
    CHECK(cudaMemcpyAsync(data[c], host + c * n, n * sizeof(int), cudaMemcpyHostToDevice,
                          streams[c]));
    CHECK(cudaEventRecord(done[c], streams[c]));
  }
  for (int r = 0; r < rounds; ++r) {
    for (int c = 0; c < chunks; ++c) {
      cudaStream_t stream = streams[(c + r) % chunks];
      CHECK(cudaStreamWaitEvent(stream, done[c], 0));
      step<<<(n + 127) / 128, 128, 0, stream>>>(data[c], n, 3, r + c);
      CHECK(cudaEventRecord(done[c], stream));
    }
  }
  for (int c = 0; c < chunks; ++c) {
    CHECK(cudaStreamWaitEvent(streams[0], done[c], 0));
    CHECK(cudaMemcpyAsync(host + c * n, data[c], n * sizeof(int), cudaMemcpyDeviceToHost,
                          streams[0]));
  }
  CHECK(cudaEventRecord(end, streams[0]));
  CHECK(cudaEventSynchronize(end));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));

  long wrong = milliseconds < 0;
  for (int c = 0; c < chunks; ++c) {
    for (int i = 0; i < n; ++i) {
      int want = (c * n + i) % 100;
      for (int r = 0; r < rounds; ++r) want = want * 3 + r + c;
      wrong += host[c * n + i] != want;
    }
    CHECK(cudaFree(data[c]));
    CHECK(cudaEventDestroy(done[c]));
    CHECK(cudaStreamDestroy(streams[c]));
  }
  CHECK(cudaFreeHost(host));
  return report("streams_events", wrong);
}
