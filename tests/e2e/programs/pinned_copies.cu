// Large copies of pinned and registered memory: their place in a stream, the life of both sides,
// memory that comes and goes at one address. Over rdma the worker's adapter makes them, by itself
// where it reaches device memory.
#include <sys/mman.h>

#include <cstring>
#include <thread>
#include <vector>

#include "expect.h"

namespace {

constexpr size_t kBytes = size_t{4} << 20;
constexpr size_t kWords = kBytes / sizeof(unsigned);

// The first block waits, so that what is behind it in the stream has to.
__global__ void copy_later(const unsigned* from, unsigned* to, size_t n, unsigned milliseconds) {
  if (milliseconds != 0 && blockIdx.x == 0 && threadIdx.x == 0) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < milliseconds * 1000000ull);
  }
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    to[i] = from[i];
}

void fill(unsigned* words, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; ++i) words[i] = static_cast<unsigned>(i * 2654435761u + seed);
}

// Small reads come by another way than large ones.
bool looks_like(const unsigned* device, size_t n, unsigned seed) {
  unsigned got[64];
  for (size_t at : {size_t{0}, n / 3, n - 64}) {
    if (cudaMemcpy(got, device + at, sizeof got, cudaMemcpyDeviceToHost) != cudaSuccess)
      return false;
    for (size_t i = 0; i < 64; ++i) {
      if (got[i] != static_cast<unsigned>((at + i) * 2654435761u + seed)) return false;
    }
  }
  return true;
}

unsigned* device_words(size_t bytes = kBytes) {
  unsigned* made = nullptr;
  CHECK(cudaMalloc(&made, bytes));
  return made;
}

unsigned* pinned_words(size_t bytes = kBytes) {
  unsigned* made = nullptr;
  CHECK(cudaMallocHost(&made, bytes));
  return made;
}

// What was before the copy in the stream sees the old bytes, what is behind it sees the new ones.
void keeps_its_place_in_the_stream() {
  unsigned *data = device_words(), *before = device_words(), *after = device_words();
  unsigned *in = pinned_words(), *out = pinned_words();
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  fill(in, kWords, 1);
  CHECK(cudaMemcpyAsync(data, in, kBytes, cudaMemcpyHostToDevice, stream));
  CHECK(cudaStreamSynchronize(stream));
  fill(in, kWords, 2);
  copy_later<<<4, 64, 0, stream>>>(data, before, kWords, 60);
  CHECK(cudaMemcpyAsync(data, in, kBytes, cudaMemcpyHostToDevice, stream));
  copy_later<<<4, 64, 0, stream>>>(data, after, kWords, 0);
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(looks_like(before, kWords, 1));
  EXPECT(looks_like(after, kWords, 2));
  // To the host: behind a kernel that writes, in front of one that writes again.
  copy_later<<<4, 64, 0, stream>>>(before, data, kWords, 60);
  CHECK(cudaMemcpyAsync(out, data, kBytes, cudaMemcpyDeviceToHost, stream));
  copy_later<<<4, 64, 0, stream>>>(after, data, kWords, 0);
  CHECK(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < kWords; ++i) EXPECT(out[i] == static_cast<unsigned>(i * 2654435761u + 1));
  EXPECT(looks_like(data, kWords, 2));
  // The default stream waits for the others, and they for it.
  fill(in, kWords, 3);
  copy_later<<<4, 64, 0, stream>>>(data, before, kWords, 30);
  CHECK(cudaMemcpyAsync(data, in, kBytes, cudaMemcpyHostToDevice, nullptr));
  copy_later<<<4, 64, 0, stream>>>(data, after, kWords, 0);
  CHECK(cudaDeviceSynchronize());
  EXPECT(looks_like(before, kWords, 2));
  EXPECT(looks_like(after, kWords, 3));
  CHECK(cudaStreamDestroy(stream));
  for (unsigned* memory : {data, before, after}) CHECK(cudaFree(memory));
  for (unsigned* memory : {in, out}) CHECK(cudaFreeHost(memory));
}

// The application may do with the source what it likes once a synchronous copy has returned, or
// free it.
void sources_are_free_afterwards() {
  unsigned* data = device_words();
  unsigned* in = pinned_words();
  for (unsigned seed = 10; seed < 14; ++seed) {
    fill(in, kWords, seed);
    CHECK(cudaMemcpy(data, in, kBytes, cudaMemcpyHostToDevice));
    std::memset(in, 0xee, kBytes);
    EXPECT(looks_like(data, kWords, seed));
  }
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  unsigned* scratch = device_words();
  fill(in, kWords, 20);
  copy_later<<<4, 64, 0, stream>>>(data, scratch, kWords, 40);
  CHECK(cudaMemcpyAsync(data, in, kBytes, cudaMemcpyHostToDevice, stream));
  CHECK(cudaFreeHost(in));  // waits for the copy
  EXPECT(looks_like(data, kWords, 20));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(scratch));
  CHECK(cudaFree(data));
}

// Most likely at one address, with other pages behind it each time.
void memory_comes_and_goes() {
  unsigned* in = pinned_words();
  unsigned* out = pinned_words();
  for (unsigned seed = 30; seed < 36; ++seed) {
    unsigned* data = device_words();
    fill(in, kWords, seed);
    CHECK(cudaMemcpy(data, in, kBytes, cudaMemcpyHostToDevice));
    EXPECT(looks_like(data, kWords, seed));
    CHECK(cudaMemcpy(out, data, kBytes, cudaMemcpyDeviceToHost));
    EXPECT(std::memcmp(in, out, kBytes) == 0);
    CHECK(cudaFree(data));
  }
  CHECK(cudaFreeHost(in));
  CHECK(cudaFreeHost(out));
  unsigned* data = device_words();
  void* const place =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (unsigned seed = 40; seed < 44; ++seed) {
    // The same addresses, new pages.
    EXPECT(mmap(place, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) == place);
    auto* words = static_cast<unsigned*>(place);
    fill(words, kWords, seed);
    CHECK(cudaHostRegister(place, kBytes, cudaHostRegisterDefault));
    CHECK(cudaMemcpy(data, words, kBytes, cudaMemcpyHostToDevice));
    EXPECT(looks_like(data, kWords, seed));
    std::memset(place, 0, kBytes);
    CHECK(cudaMemcpy(words, data, kBytes, cudaMemcpyDeviceToHost));
    EXPECT(words[kWords - 1] == static_cast<unsigned>((kWords - 1) * 2654435761u + seed));
    CHECK(cudaHostUnregister(place));
  }
  munmap(place, kBytes);
  CHECK(cudaFree(data));
}

// Pointers into the middle of both sides, across the windows in which device memory is registered.
void parts_of_large_memory() {
  constexpr size_t kLarge = size_t{68} << 20;
  unsigned* data = device_words(kLarge);
  unsigned* in = pinned_words(kBytes + 4096);
  unsigned* out = pinned_words(kBytes + 4096);
  fill(in, kWords + 1024, 50);
  for (size_t at : {size_t{4}, (size_t{64} << 20) - (size_t{1} << 20) - 12, kLarge - kBytes}) {
    char* const place = reinterpret_cast<char*>(data) + at;
    CHECK(cudaMemset(data + (at + 3) / 4, 0, 4096));
    CHECK(
        cudaMemcpyAsync(place, reinterpret_cast<char*>(in) + 1029, kBytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyAsync(reinterpret_cast<char*>(out) + 7, place, kBytes, cudaMemcpyDeviceToHost));
    CHECK(cudaDeviceSynchronize());
    EXPECT(std::memcmp(reinterpret_cast<char*>(out) + 7, reinterpret_cast<char*>(in) + 1029,
                       kBytes) == 0);
  }
  // Rows with a pitch on the device.
  CHECK(cudaMemcpy2D(data, 3072, in, 2048, 2048, 1024, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2D(out, 2048, data, 3072, 2048, 1024, cudaMemcpyDeviceToHost));
  EXPECT(std::memcmp(out, in, 2048 * 1024) == 0);
  EXPECT_ERROR(
      cudaMemcpy(reinterpret_cast<char*>(data) + kLarge - 100, in, kBytes, cudaMemcpyHostToDevice),
      cudaErrorInvalidValue);
  CHECK(cudaFree(data));
  CHECK(cudaFreeHost(in));
  CHECK(cudaFreeHost(out));
}

void several_threads() {
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 3; ++thread) {
    threads.emplace_back([thread] {
      unsigned* data = device_words();
      unsigned *in = pinned_words(), *out = pinned_words();
      cudaStream_t stream;
      CHECK(cudaStreamCreate(&stream));
      for (unsigned round = 0; round < 3; ++round) {
        fill(in, kWords, 100 * thread + round);
        std::memset(out, 0, kBytes);
        CHECK(cudaMemcpyAsync(data, in, kBytes, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpyAsync(out, data, kBytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(std::memcmp(in, out, kBytes) == 0);
      }
      CHECK(cudaStreamDestroy(stream));
      CHECK(cudaFree(data));
      CHECK(cudaFreeHost(in));
      CHECK(cudaFreeHost(out));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
  keeps_its_place_in_the_stream();
  sources_are_free_afterwards();
  memory_comes_and_goes();
  parts_of_large_memory();
  several_threads();
  std::printf("pinned_copies: right\n");
  return 0;
}
