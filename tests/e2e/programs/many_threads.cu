// Many threads launch at once. What one thread submits after another thread's call returned sees
// its effects, in one stream, without waiting for the device in between; and threads with streams
// of their own do not disturb each other.
#include <atomic>
#include <thread>
#include <vector>

#include "expect.h"

__global__ void mix(unsigned* state, unsigned value) { *state = *state * 31 + value; }

__global__ void fill(unsigned* data, unsigned value, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = value + i;
}

int main() {
  const int threads = 8;
  // One stream, one baton: the result depends on the order of all launches.
  unsigned* state;
  CHECK(cudaMalloc(&state, sizeof(unsigned)));
  CHECK(cudaMemset(state, 0, sizeof(unsigned)));
  CHECK(cudaDeviceSynchronize());
  cudaStream_t shared;
  CHECK(cudaStreamCreateWithFlags(&shared, cudaStreamNonBlocking));
  std::atomic<unsigned> turn{0};
  const unsigned rounds = 25;
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      for (unsigned r = 0; r < rounds; ++r) {
        const unsigned mine = r * threads + t;
        while (turn.load() != mine) std::this_thread::yield();
        mix<<<1, 1, 0, shared>>>(state, mine);
        CHECK(cudaGetLastError());
        turn.store(mine + 1);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  unsigned got = 0, want = 0;
  CHECK(cudaStreamSynchronize(shared));
  CHECK(cudaMemcpy(&got, state, sizeof(got), cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < rounds * threads; ++i) want = want * 31 + i;
  EXPECT(got == want);

  // Free running, each in its own stream.
  workers.clear();
  for (unsigned t = 0; t < threads; ++t) {
    workers.emplace_back([t] {
      const int n = 777;
      cudaStream_t stream;
      unsigned* data;
      std::vector<unsigned> out(n);
      CHECK(cudaStreamCreate(&stream));
      CHECK(cudaMalloc(&data, n * sizeof(unsigned)));
      for (unsigned r = 0; r < 30; ++r) {
        fill<<<7, 128, 0, stream>>>(data, t * 100000 + r, n);
        CHECK(cudaMemcpyAsync(out.data(), data, n * sizeof(unsigned), cudaMemcpyDeviceToHost,
                              stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < n; ++i) EXPECT(out[i] == t * 100000 + r + i);
      }
      CHECK(cudaFree(data));
      CHECK(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& worker : workers) worker.join();
  std::printf("many_threads: right\n");
  return 0;
}
