// Memory that is registered as read-only: device code reads what the host has there, be it a file
// that is mapped for reading alone, and nothing of it is ever written for a device.
#include <sys/mman.h>

#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 1 << 20, kWords = kBytes / sizeof(int);

CUfunction load, store;
CUdeviceptr seen;
CUstream stream;

int read_by_kernel(const int* word) {
  int back = 0;
  CU(launch(load, stream, seen, reinterpret_cast<CUdeviceptr>(word)));
  CU(cuMemcpyDtoHAsync(&back, seen, sizeof back, stream));
  CU(cuStreamSynchronize(stream));
  return back;
}

int file_of_numbers() {
  const int file = ::memfd_create("read_only", 0);
  std::vector<int> numbers(kWords);
  for (size_t i = 0; i < kWords; ++i) numbers[i] = static_cast<int>(i);
  HOLDS(file >= 0 && ::pwrite(file, numbers.data(), kBytes, 0) == ssize_t{kBytes});
  return file;
}

const int* map_file(int file) {
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file, 0);
  HOLDS(memory != MAP_FAILED);
  return static_cast<const int*>(memory);
}

CUresult enroll(const void* memory, unsigned more) {
  return cuMemHostRegister(const_cast<void*>(memory), kBytes, CU_MEMHOSTREGISTER_READ_ONLY | more);
}

void files_are_read(unsigned more) {
  const int file = file_of_numbers();
  const int* const words = map_file(file);
  step("without the flag memory that may not be written is refused");
  HOLDS(cuMemHostRegister(const_cast<int*>(words), kBytes, more) != CUDA_SUCCESS);
  step("kernels read the file, also what is written there later");
  CU(enroll(words, more));
  HOLDS(read_by_kernel(words + 5) == 5);
  HOLDS(read_by_kernel(words + kWords - 1) == int{kWords - 1});
  const int other = 77;
  HOLDS(::pwrite(file, &other, sizeof other, 5 * sizeof(int)) == ssize_t{sizeof other});
  HOLDS(read_by_kernel(words + 5) == 77);

  step("copies read it");
  const CUdeviceptr device = device_memory(kBytes);
  std::vector<int> back(kWords);
  CU(cuMemcpyHtoDAsync(device, words, kBytes, stream));
  CU(cuMemcpyDtoHAsync(back.data(), device, kBytes, stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(back[5] == 77 && back[6] == 6 && back[kWords - 1] == int{kWords - 1});
  CU(cuMemFree(device));
  CU(cuMemHostUnregister(const_cast<int*>(words)));
  ::munmap(const_cast<int*>(words), kBytes);
  ::close(file);
}

// Last: where the device notices the write, the context ends with it.
void nothing_is_written() {
  std::vector<int> words(kWords, 3);
  CU(enroll(words.data(), CU_MEMHOSTREGISTER_DEVICEMAP));
  step("a copy to the host");
  const CUresult copied = cuMemcpyDtoH(words.data(), seen, kBytes / 2);
  if (copied == CUDA_SUCCESS) return note("a copy to the host overwrites such memory here");
  HOLDS(words[0] == 3);
  step("a kernel that stores");
  const CUresult stored =
      launch(store, stream, reinterpret_cast<CUdeviceptr>(words.data() + 9), 44);
  const CUresult ended = stored != CUDA_SUCCESS ? stored : cuStreamSynchronize(stream);
  if (ended == CUDA_SUCCESS) return note("a kernel stores to such memory here");
  for (const int word : words) HOLDS(word == 3);
}

}  // namespace

int main() {
  begin();
  use_primary();
  int supported = 0;
  CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0));
  if (supported == 0) {
    note("the device registers no memory as read-only");
    right();
  }
  const CUmodule module = load_kernels();
  load = kernel_of(module, "load");
  store = kernel_of(module, "store");
  seen = device_memory(kBytes);
  stream = make_stream();
  for (const unsigned more : {0u, unsigned{CU_MEMHOSTREGISTER_DEVICEMAP}}) files_are_read(more);
  nothing_is_written();
  right();
}
