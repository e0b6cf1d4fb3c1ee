// Memory of the application that it registers is used by kernels: any range of bytes, by its device
// pointer, and by its host pointer where the device says so. Bytes beside the range are nobody's
// business but the application's.
#include <sys/mman.h>

#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kPage = 4096;
CUfunction spin, store, load, increment, store_bytes, add_bytes;
bool host_pointers;  // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM

int attribute(CUdevice_attribute which) {
  int value = -1;
  CU(cuDeviceGetAttribute(&value, which, 0));
  return value;
}

unsigned char* pages(size_t count) {
  void* const memory =
      mmap(nullptr, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HOLDS(memory != MAP_FAILED);
  return static_cast<unsigned char*>(memory);
}

CUdeviceptr device_pointer(void* host) {
  CUdeviceptr device;
  CU(cuMemHostGetDevicePointer(&device, host, 0));
  if (host_pointers) HOLDS(device == reinterpret_cast<CUdeviceptr>(host));
  return device;
}

CUresult set_bytes(CUdeviceptr to, int count, int first, int step, int value) {
  void* parameters[] = {&to, &count, &first, &step, &value};
  return cuLaunchKernel(store_bytes, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr);
}

// Ranges that begin and end anywhere; the bytes around them change on the host only.
void any_range(unsigned flags) {
  unsigned char* const memory = pages(4);
  for (const auto& [offset, bytes] : std::vector<std::pair<size_t, int>>{
           {20, 1000}, {1, 1}, {kPage - 3, 6}, {kPage - 1, 2 * kPage + 2}, {0, kPage}, {7, 9001}}) {
    for (size_t i = 0; i < 4 * kPage; ++i) memory[i] = static_cast<unsigned char>(i);
    unsigned char* const range = memory + offset;
    CU(cuMemHostRegister(range, static_cast<size_t>(bytes), flags));
    const CUdeviceptr device = device_pointer(range);
    for (int round = 1; round <= 3; ++round) {
      int total = 0, expected = 0;
      const CUdeviceptr sum = device_memory(sizeof(int));
      for (int i = 0; i < bytes; ++i) expected += range[i];
      CU(launch(add_bytes, nullptr, sum, device, bytes));
      CU(cuMemcpyDtoH(&total, sum, sizeof total));
      if (total != expected)
        wrong("%d bytes at %zu: a sum of %d, not %d", bytes, offset, total, expected);
      CU(set_bytes(device, (bytes + 1) / 2, 0, 2, round));
      if (offset > 0) memory[offset - 1] = static_cast<unsigned char>(100 + round);
      memory[offset + static_cast<size_t>(bytes)] = static_cast<unsigned char>(200 + round);
      CU(cuCtxSynchronize());
      for (int i = 0; i < bytes; i += 2)
        HOLDS(range[i] == static_cast<unsigned char>(round + i / 2));
      if (offset > 0) HOLDS(memory[offset - 1] == 100 + round);
      HOLDS(memory[offset + static_cast<size_t>(bytes)] == 200 + round);
      CU(cuMemFree(sum));
    }
    CU(cuMemHostUnregister(range));
  }
  munmap(memory, 4 * kPage);
}

// Kernels get the host pointer itself.
void by_host_pointer(unsigned flags) {
  if (!host_pointers) return note("registered memory is not used by its host pointer here");
  auto* const words = reinterpret_cast<int*>(pages(2));
  CU(cuMemHostRegister(words, 2 * kPage, flags));
  for (int round = 1; round <= 10; ++round) {
    words[1] = 10 * round;
    CU(launch(store, nullptr, words, round));
    CU(launch(load, nullptr, words + 1500, words + 1));
    CU(cuStreamSynchronize(nullptr));
    HOLDS(words[0] == round && words[1] == 10 * round && words[1500] == 10 * round);
  }
  CU(cuMemHostUnregister(words));
  munmap(words, 2 * kPage);
}

// What a kernel wrote last is there when the registration has ended without another wait.
void unregistered_behind_a_kernel() {
  auto* const words = reinterpret_cast<int*>(pages(1));
  for (int round = 1; round <= 5; ++round) {
    CU(cuMemHostRegister(words, kPage, CU_MEMHOSTREGISTER_DEVICEMAP));
    const CUdeviceptr device = device_pointer(words);
    CU(launch(spin, nullptr, 2000u));
    CU(launch(store, nullptr, device, round));
    CU(cuCtxSynchronize());
    HOLDS(words[0] == round);
    CU(launch(store, nullptr, device, -round));
    CU(cuMemHostUnregister(words));
    if (words[0] != -round)
      wrong("round %d: %d after the end of the registration", round, words[0]);
  }
  munmap(words, kPage);
}

// Several registrations in one page; one goes and comes again while others stay.
void neighbours_in_one_page() {
  unsigned char* const memory = pages(3);
  struct Range {
    size_t offset, bytes;
  } const ranges[] = {{16, 100}, {200, 3000}, {3300, 2 * kPage}};
  for (const auto& range : ranges) {
    const CUresult result =
        cuMemHostRegister(memory + range.offset, range.bytes, CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
      note("this driver registers whole pages, each once");
      for (const auto& earlier : ranges) {
        if (earlier.offset < range.offset) CU(cuMemHostUnregister(memory + earlier.offset));
      }
      munmap(memory, 3 * kPage);
      return;
    }
    CU(result);
  }
  for (int round = 1; round <= 10; ++round) {
    for (const auto& range : ranges) {
      const int count = static_cast<int>(range.bytes / 2);
      CU(set_bytes(device_pointer(memory + range.offset), count, 1, 2, round));
      for (int i = 0; i < count; ++i)
        memory[range.offset + 2 * static_cast<size_t>(i)] = static_cast<unsigned char>(3 * round);
    }
    memory[0] = memory[150] = memory[3250] = static_cast<unsigned char>(round);
    CU(cuCtxSynchronize());
    for (const auto& range : ranges) {
      for (size_t i = 0; i < range.bytes / 2; ++i) {
        HOLDS(memory[range.offset + 2 * i] == static_cast<unsigned char>(3 * round));
        HOLDS(memory[range.offset + 2 * i + 1] ==
              static_cast<unsigned char>(round + static_cast<int>(i)));
      }
    }
    HOLDS(memory[0] == round && memory[150] == round && memory[3250] == round);
    const auto& one = ranges[round % 3];
    CU(cuMemHostUnregister(memory + one.offset));
    CU(cuMemHostRegister(memory + one.offset, one.bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  }
  // An operation of the driver over a range of which the first page has others.
  CU(cuMemsetD8(device_pointer(memory + 3300), 0xab, 2 * kPage));
  CU(cuCtxSynchronize());
  for (size_t i = 0; i < 2 * kPage; ++i) HOLDS(memory[3300 + i] == 0xab);
  HOLDS(memory[3299] != 0xab && memory[3300 + 2 * kPage] == 0);
  for (const auto& range : ranges) CU(cuMemHostUnregister(memory + range.offset));
  munmap(memory, 3 * kPage);
}

// Copies and kernels on the same registered memory.
void copies_of_what_kernels_write() {
  constexpr size_t kBytes = 64 * kPage;
  unsigned char* const memory = pages(64);
  CU(cuMemHostRegister(memory, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  const CUdeviceptr mapped = device_pointer(memory), device = device_memory(kBytes);
  const CUstream stream = make_stream();
  std::vector<unsigned char> back(kBytes);
  for (int round = 1; round <= 10; ++round) {
    CU(cuMemsetD8Async(mapped, static_cast<unsigned char>(round), kBytes, stream));
    CU(cuMemcpyHtoDAsync(device, memory, kBytes, stream));
    CU(cuMemsetD8Async(device + 1, static_cast<unsigned char>(100 + round), 1, stream));
    CU(cuMemcpyDtoHAsync(memory + kPage, device, 2, stream));
    CU(cuMemcpyDtoHAsync(back.data(), mapped, kBytes, stream));
    CU(cuStreamSynchronize(stream));
    HOLDS(memory[0] == round && memory[kBytes - 1] == round);
    HOLDS(memory[kPage] == round && memory[kPage + 1] == 100 + round);
    HOLDS(back[0] == round && back[kPage + 1] == 100 + round && back[kBytes - 1] == round);
    memory[5] = 77;
    CU(cuMemcpyHtoD(device, memory, kBytes));
    CU(cuMemcpyDtoH(back.data(), device, kBytes));
    HOLDS(back[5] == 77 && back[6] == round);
  }
  CU(cuMemHostUnregister(memory));
  munmap(memory, kBytes);
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin");
  store = kernel_of(module, "store");
  load = kernel_of(module, "load");
  increment = kernel_of(module, "increment");
  store_bytes = kernel_of(module, "store_bytes");
  add_bytes = kernel_of(module, "add_bytes");
  if (attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) == 0) {
    note("the device registers no memory");
    right();
  }
  host_pointers = attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0;
  for (const unsigned flags : {0u, unsigned{CU_MEMHOSTREGISTER_DEVICEMAP}}) {
    step("any range");
    any_range(flags);
    step("by host pointer");
    by_host_pointer(flags);
  }
  step("the end of a registration behind a kernel");
  unregistered_behind_a_kernel();
  step("several registrations in one page");
  neighbours_in_one_page();
  step("copies of what kernels write");
  copies_of_what_kernels_write();
  right();
}
