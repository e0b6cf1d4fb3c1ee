// What it costs the host to touch managed memory that the device has, one page after the other:
// reads, writes, and reads here and there; beside copies of as many bytes to and from pageable
// memory.
//
// usage: managed_touch [MIB]; FARGPU_MANAGED chooses how accesses wait.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

namespace {

constexpr int kRounds = 5;
constexpr size_t kPage = 4096;

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
}
#define MUST(call) must(call, #call)

// The shortest time of some rounds, in milliseconds. The device has the memory before each.
double time_of(CUdeviceptr memory, const std::function<void()>& use) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    MUST(cuMemsetD8(memory, static_cast<unsigned char>(round + 1), 64));
    MUST(cuCtxSynchronize());
    const auto begin = std::chrono::steady_clock::now();
    use();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  return best;
}

}  // namespace

int main(int count, char** values) {
  const size_t bytes = (count > 1 ? std::strtoull(values[1], nullptr, 10) : 256) << 20;
  MUST(cuInit(0));
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  CUdeviceptr managed = 0, device = 0;
  MUST(cuMemAllocManaged(&managed, bytes, CU_MEM_ATTACH_GLOBAL));
  MUST(cuMemAlloc(&device, bytes));
  std::vector<char> pageable(bytes, 1);
  volatile char* const memory = reinterpret_cast<char*>(managed);
  for (size_t at = 0; at < bytes; at += kPage) memory[at] = 1;

  const auto rate = [bytes](double ms) { return static_cast<double>(bytes) / ms / 1e6; };
  const auto show = [&](const char* what, double ms) {
    std::printf("%-34s %8.1f ms %6.2f GB/s\n", what, ms, rate(ms));
  };
  show("pageable copy from the device",
       time_of(managed, [&] { MUST(cuMemcpyDtoH(pageable.data(), device, bytes)); }));
  show("pageable copy to the device",
       time_of(managed, [&] { MUST(cuMemcpyHtoD(device, pageable.data(), bytes)); }));
  char sum = 0;
  const auto read_pages = [&sum, bytes](const volatile char* from) {
    for (size_t at = 0; at < bytes; at += kPage) sum = static_cast<char>(sum + from[at]);
  };
  show("copied from it, each page is read", time_of(managed, [&] {
         MUST(cuMemcpyDtoH(pageable.data(), device, bytes));
         read_pages(pageable.data());
       }));
  show("managed, each page is read", time_of(managed, [&] { read_pages(memory); }));
  show("managed, each page is written", time_of(managed, [&] {
         for (size_t at = 0; at < bytes; at += kPage) memory[at] = 2;
       }));
  show("and given to the device", time_of(managed, [&] {
         for (size_t at = 0; at < bytes; at += kPage) memory[at] = 2;
         MUST(cuMemsetD8(managed, 3, 64));
         MUST(cuCtxSynchronize());
       }));
  constexpr int kReads = 200;
  std::mt19937 random(1);
  const double scattered = time_of(managed, [&] {
    for (int i = 0; i < kReads; ++i) sum = static_cast<char>(sum + memory[random() % bytes]);
  });
  std::printf("%-34s %8.1f us each\n", "managed, read here and there", scattered * 1e3 / kReads);
  return sum == 77 ? 2 : 0;
}
