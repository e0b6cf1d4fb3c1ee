// Memory that is registered as read-only: device code reads what the host has there, be it a file
// that is mapped for reading alone, and nothing of it is ever written for a device.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
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
  step("copies to it are refused");
  const auto to = reinterpret_cast<CUdeviceptr>(words);
  HOLDS(cuMemcpyHtoD(to, back.data(), kBytes) == CUDA_ERROR_INVALID_VALUE);
  HOLDS(cuMemcpyHtoDAsync(to, back.data(), kBytes, stream) == CUDA_ERROR_INVALID_VALUE);
  HOLDS(cuMemcpy(to, reinterpret_cast<CUdeviceptr>(back.data()), kBytes) ==
        CUDA_ERROR_INVALID_VALUE);
  HOLDS(cuMemcpyDtoD(to, device, kBytes) == CUDA_ERROR_INVALID_VALUE);
  HOLDS(cuMemcpyDtoH(const_cast<int*>(words), device, kBytes) == CUDA_ERROR_INVALID_VALUE);
  CU(cuMemFree(device));
  CU(cuMemHostUnregister(const_cast<int*>(words)));
  ::munmap(const_cast<int*>(words), kBytes);
  ::close(file);
}

// A file of a disk, which others write while it is registered: with a descriptor that they close,
// with one that they keep, and by a mapping.
void files_are_written_by_others() {
  const char* const folder = std::getenv("TMPDIR");
  std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/read-only-XXXXXX";
  const int made = ::mkstemp(path.data());
  HOLDS(made >= 0 && ::ftruncate(made, kBytes) == 0);
  ::close(made);
  const int file = ::open(path.c_str(), O_RDONLY);
  const int* const words = map_file(file);
  CU(enroll(words, CU_MEMHOSTREGISTER_DEVICEMAP));
  const auto write = [&](int writer, int number) {
    HOLDS(::pwrite(writer, &number, sizeof number, 5 * sizeof(int)) == ssize_t{sizeof number});
  };
  int number = 0;
  for (int round = 0; round < 5; ++round) {
    step("nobody writes");
    for (int i = 0; i < 5; ++i) HOLDS(read_by_kernel(words + 5) == number);
    usleep(round * 70'000);
    for (int i = 0; i < 5; ++i) HOLDS(read_by_kernel(words + 5) == number);
    step("a descriptor that is closed");
    int writer = ::open(path.c_str(), O_RDWR);
    write(writer, ++number);
    ::close(writer);
    HOLDS(read_by_kernel(words + 5) == number);
    step("a descriptor that stays");
    writer = ::open(path.c_str(), O_RDWR);
    HOLDS(read_by_kernel(words + 5) == number);
    usleep(round * 70'000);
    HOLDS(read_by_kernel(words + 5) == number);
    write(writer, ++number);
    HOLDS(read_by_kernel(words + 5) == number);
    step("a mapping");
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
    HOLDS(memory != MAP_FAILED);
    ::close(writer);
    int* const others = static_cast<int*>(memory);
    for (int i = 0; i < 3; ++i) {
      others[5] = ++number;
      HOLDS(read_by_kernel(words + 5) == number);
      usleep(round * 50'000);
    }
    others[5] = ++number;
    ::munmap(memory, kBytes);
    HOLDS(read_by_kernel(words + 5) == number);
  }
  CU(cuMemHostUnregister(const_cast<int*>(words)));
  ::munmap(const_cast<int*>(words), kBytes);
  ::close(file);
  ::unlink(path.c_str());
}

// Ordinary memory, of which some is written and read between launches, and all of it at times.
void what_the_host_writes_is_read() {
  constexpr size_t kMuch = 16 * kBytes, kNumbers = kMuch / sizeof(int);
  void* const memory =
      ::mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HOLDS(memory != MAP_FAILED);
  int* const words = static_cast<int*>(memory);
  const auto expected = [](size_t at, int round) { return static_cast<int>(at) * 3 + round; };
  constexpr unsigned kFlags = CU_MEMHOSTREGISTER_READ_ONLY | CU_MEMHOSTREGISTER_DEVICEMAP;
  CU(cuMemHostRegister(memory, kMuch, kFlags));
  for (int round = 1; round < 5; ++round) {
    step("all of it is written");
    for (size_t i = 0; i < kNumbers; ++i) words[i] = expected(i, round);
    for (size_t at = 5; at < kNumbers; at += kNumbers / 7)
      HOLDS(read_by_kernel(words + at) == expected(at, round));
    step("a word here and there");
    for (int i = 0; i < 30; ++i) {
      const size_t at = (static_cast<size_t>(i) * 7919 * 1000 + 11) % kNumbers;
      HOLDS(words[at] == expected(at, round));
      words[at] = -i;
      HOLDS(read_by_kernel(words + at) == -i);
      HOLDS(read_by_kernel(words + (at + 1) % kNumbers) == expected((at + 1) % kNumbers, round));
      words[at] = expected(at, round);
    }
    step("the host has what it wrote");
    for (size_t i = 0; i < kNumbers; ++i) HOLDS(words[i] == expected(i, round));
  }
  step("it is protected, and written once more");
  HOLDS(::mprotect(memory, kMuch, PROT_READ) == 0);
  HOLDS(words[9] == expected(9, 4) && read_by_kernel(words + 9) == expected(9, 4));
  HOLDS(::mprotect(memory, kMuch, PROT_READ | PROT_WRITE) == 0);
  words[9] = 99;
  HOLDS(read_by_kernel(words + 9) == 99);
  CU(cuMemHostUnregister(memory));
  HOLDS(words[9] == 99 && words[kNumbers - 1] == expected(kNumbers - 1, 4));
  ::munmap(memory, kMuch);
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
  files_are_written_by_others();
  what_the_host_writes_is_read();
  nothing_is_written();
  right();
}
