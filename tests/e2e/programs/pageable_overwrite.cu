// A pageable source may be overwritten as soon as the async copy has returned: the bytes were
// taken. Many times, many sizes, several streams.
#include <cstring>
#include <vector>

#include "expect.h"

__global__ void add_one(unsigned* data, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += 1;
}

int main() {
  const int streams = 3;
  cudaStream_t stream[streams];
  for (cudaStream_t& s : stream) CHECK(cudaStreamCreate(&s));
  std::vector<unsigned> source, out;
  int round = 0;
  for (int n : {1, 7, 1000, 16384, 100000, 700000, 100000, 1000, 3}) {
    unsigned* data[streams];
    source.resize(n);
    for (int s = 0; s < streams; ++s) {
      CHECK(cudaMalloc(&data[s], n * sizeof(unsigned)));
      for (int i = 0; i < n; ++i) source[i] = 1000000u * s + i + round;
      CHECK(cudaMemcpyAsync(data[s], source.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice,
                            stream[s]));
      std::memset(source.data(), 0xee, n * sizeof(unsigned));  // at once, without waiting
      add_one<<<(n + 255) / 256, 256, 0, stream[s]>>>(data[s], n);
    }
    for (int s = 0; s < streams; ++s) {
      out.assign(n, 0);
      CHECK(cudaMemcpyAsync(out.data(), data[s], n * sizeof(unsigned), cudaMemcpyDeviceToHost,
                            stream[s]));
      CHECK(cudaStreamSynchronize(stream[s]));
      for (int i = 0; i < n; ++i) EXPECT(out[i] == 1000000u * s + i + round + 1);
      CHECK(cudaFree(data[s]));
    }
    ++round;
  }
  std::printf("pageable_overwrite: right\n");
  return 0;
}
