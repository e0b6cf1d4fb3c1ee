// Ways to end with the GPU in use: ending exit N | return | abort | kill SIGNAL | wait (until a
// signal) | handle (SIGTERM, exits 33).
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "expect.h"

__global__ void work(int* p) { *p += 1; }

static volatile sig_atomic_t signalled = 0;

int main(int count, char** values) {
  EXPECT(count >= 2);
  const char* way = values[1];
  int* p;
  CHECK(cudaMalloc(&p, 1 << 20));
  CHECK(cudaMemset(p, 0, 1 << 20));
  work<<<1, 1>>>(p);
  CHECK(cudaDeviceSynchronize());
  if (std::strcmp(way, "handle") == 0) {
    std::signal(SIGTERM, [](int) { signalled = 1; });
  }
  std::printf("ready\n");
  std::fflush(stdout);
  if (std::strcmp(way, "exit") == 0) std::exit(std::atoi(values[2]));
  if (std::strcmp(way, "return") == 0) return 0;
  if (std::strcmp(way, "abort") == 0) std::abort();
  if (std::strcmp(way, "kill") == 0) raise(std::atoi(values[2]));
  while (!signalled) usleep(10000);
  work<<<1, 1>>>(p);  // still usable in the end
  CHECK(cudaDeviceSynchronize());
  return 33;
}
