// Variables with __managed__: what the host and kernels see of them, also before the first call of
// the runtime.
#include <cstdio>
#include <cstring>

#include "expect.h"

struct Node {
  Node* next;
  int value;
};

__managed__ int counter = 5;
__managed__ double matrix[64][64];
__managed__ Node nodes[3];
__managed__ Node* head;
static __managed__ int hidden = 3;
__device__ int plain = 7;

__global__ void bump(int* copy) {
  counter += plain + hidden;
  *copy = counter;
}

__global__ void scale(double by) { matrix[blockIdx.x][threadIdx.x] *= by; }

__global__ void add_to_list(int value) {
  for (Node* node = head; node != nullptr; node = node->next) node->value += value;
}

int main() {
  EXPECT(counter == 5 && hidden == 3);
  counter = 10;
  int* copy;
  CHECK(cudaMalloc(&copy, sizeof(int)));
  bump<<<1, 1>>>(copy);
  CHECK(cudaDeviceSynchronize());
  EXPECT(counter == 20);
  int seen = 0;
  CHECK(cudaMemcpy(&seen, copy, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(seen == 20);

  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 64; ++j) matrix[i][j] = i * 100 + j;
  scale<<<64, 64>>>(0.5);
  scale<<<64, 64>>>(4);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 64; ++j) EXPECT(matrix[i][j] == 2 * (i * 100 + j));

  // Pointers in them are the same for both.
  for (int i = 0; i < 3; ++i) nodes[i] = {i < 2 ? &nodes[i + 1] : nullptr, i};
  head = &nodes[0];
  add_to_list<<<1, 1>>>(100);
  add_to_list<<<1, 1>>>(1000);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 3; ++i) EXPECT(nodes[i].value == 1100 + i);

  // As symbols, and as arguments.
  const int forty = 40;
  CHECK(cudaMemcpyToSymbol(counter, &forty, sizeof(int)));
  EXPECT(counter == 40);
  void* address = nullptr;
  CHECK(cudaGetSymbolAddress(&address, counter));
  EXPECT(address == &counter);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, &counter));
  EXPECT(attributes.type == cudaMemoryTypeManaged);
  bump<<<1, 1>>>(&hidden);
  CHECK(cudaDeviceSynchronize());
  EXPECT(counter == 50 && hidden == 50);
  std::memset(matrix, 0, sizeof matrix);
  scale<<<64, 64>>>(3);
  CHECK(cudaDeviceSynchronize());
  EXPECT(matrix[63][63] == 0);

  // In a stream, with managed memory beside it.
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  int* allocated;
  CHECK(cudaMallocManaged(&allocated, sizeof(int)));
  *allocated = 1;
  counter = 1;
  for (int i = 0; i < 100; ++i) bump<<<1, 1, 0, stream>>>(allocated);
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(counter == 1 + 100 * 57 && *allocated == counter);
  std::puts("managed_variables: right");
  return 0;
}
