// A file is read into mapped memory past the processor's caches (O_DIRECT), while another thread
// launches and waits all the time. The kernel that is launched behind the read sees all of it,
// although no instruction of the host has touched it; and a file that is written from memory which
// nobody has looked at has what a kernel stored there.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 4 << 20, kWords = kBytes / sizeof(int), kStride = 256;
constexpr int kRounds = 20;

int* mapped(CUdeviceptr* device) {
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, kBytes, CU_MEMHOSTALLOC_DEVICEMAP));
  CU(cuMemHostGetDevicePointer(device, memory, 0));
  return static_cast<int*>(memory);
}

int open_direct() {
  char name[] = "./touched_by_files.XXXXXX";
  const int plain = ::mkstemp(name);
  if (plain < 0) return plain;  // this folder is read only
  const int file = ::open(name, O_RDWR | O_DIRECT);
  ::unlink(name);
  ::close(plain);
  return file;
}

int word_of(int round, size_t at) { return round * 100'000 + static_cast<int>(at / kStride); }

}  // namespace

int main() {
  start_with("FARGPU_MAPPED", "touched");  // also beside an adapter
  begin(120);
  const CUcontext context = use_primary();
  const CUmodule module = load_kernels();
  const CUfunction store = kernel_of(module, "store"), load = kernel_of(module, "load");
  const CUfunction store_strided = kernel_of(module, "store_strided");
  const int file = open_direct();
  if (file < 0) {
    note("files cannot be read directly here");
    right();
  }
  void* pattern = nullptr;
  HOLDS(::posix_memalign(&pattern, 4096, kBytes) == 0);
  CUdeviceptr device = 0, other = 0;
  int* const host = mapped(&device);
  (void)mapped(&other);

  std::atomic<bool> over{false};
  std::thread busy([&] {
    CU(cuCtxSetCurrent(context));
    const CUstream stream = make_stream();
    while (!over) {
      CU(launch(store, stream, other, 1));
      CU(cuStreamSynchronize(stream));
    }
  });

  const CUstream stream = make_stream();
  const CUdeviceptr seen = device_memory(sizeof(int));
  for (int round = 1; round <= kRounds; ++round) {
    step("a file is read");
    auto* const words = static_cast<int*>(pattern);
    for (size_t at = 0; at < kWords; at += kStride) words[at] = word_of(round, at);
    HOLDS(::pwrite(file, pattern, kBytes, 0) == kBytes);
    HOLDS(::pread(file, host, kBytes, 0) == kBytes);
    for (size_t at = 0; at < kWords; at += kStride * 97) {
      CU(launch(load, stream, seen, device + at * sizeof(int)));
      int value = 0;
      CU(cuMemcpyDtoHAsync(&value, seen, sizeof value, stream));
      CU(cuStreamSynchronize(stream));
      if (value != word_of(round, at))
        wrong("round %d: the kernel read %d at word %zu", round, value, at);
    }
    step("a file is written");
    CUdeviceptr to = device;
    unsigned count = kWords / kStride, stride = kStride;
    int first = word_of(-round, 0);
    void* parameters[] = {&to, &count, &stride, &first};
    CU(cuLaunchKernel(store_strided, 1, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr));
    CU(cuStreamSynchronize(stream));
    HOLDS(::pwrite(file, host, kBytes, 0) == kBytes);
    HOLDS(::pread(file, pattern, kBytes, 0) == kBytes);
    for (size_t at = 0; at < kWords; at += kStride)
      if (words[at] != word_of(-round, at))
        wrong("round %d: the file has %d at word %zu", round, words[at], at);
  }
  over = true;
  busy.join();
  ::close(file);
  right();
}
