// A stream waits for a value in host memory, and a kernel behind the wait reads what the host
// stored before it stored the value: wherever that lies, in memory that devices know and in memory
// that they hear of by a pointer in it.
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr int kRounds = 8;
constexpr size_t kWords = 4u << 20;
CUfunction load, load_through;
CUstream stream;
CUdeviceptr result;

int result_word() {
  int value = -1;
  CU(cuMemcpyDtoH(&value, result, sizeof value));
  return value;
}

void store_value(int* to, int value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }

CUdeviceptr device_pointer(void* host) {
  CUdeviceptr device = 0;
  CU(cuMemHostGetDevicePointer(&device, host, 0));
  return device;
}

// The value lies before the data, and between them.
void value_in_one_region_with_data(int* words, size_t value_at) {
  const CUdeviceptr device = device_pointer(words);
  const size_t last = kWords - 1;
  for (int round = 1; round <= kRounds; ++round) {
    CU(cuStreamWaitValue32(stream, device + value_at * sizeof(int), static_cast<cuuint32_t>(round),
                           CU_STREAM_WAIT_VALUE_GEQ));
    CU(launch(load, stream, result, device + last * sizeof(int)));
    for (size_t i = 0; i < kWords; ++i) {
      if (i != value_at) words[i] = static_cast<int>(i) + round;
    }
    store_value(words + value_at, round);
    CU(cuStreamSynchronize(stream));
    HOLDS(result_word() == static_cast<int>(last) + round);
  }
}

// The bytes of the value change one by one, and no mixture of old and new ones is ever there.
void value_whole(int* words) {
  const CUdeviceptr device = device_pointer(words);
  for (int round = 0; round < 200; ++round) {
    store_value(words, 0x00ff00ff);
    CU(cuStreamSynchronize(stream));
    CU(cuStreamWaitValue32(stream, device, 0x01000100, CU_STREAM_WAIT_VALUE_EQ));
    store_value(words, 0x01000100);
    CU(cuStreamSynchronize(stream));
  }
}

// The data is memory that no device has heard of before the host stores a pointer to it.
void value_after_pointer(int* words) {
  const CUdeviceptr device = device_pointer(words);
  int* data = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&data), 64 << 10, 0));
  store_value(words, 0);
  CU(cuStreamSynchronize(stream));
  CU(cuStreamWaitValue32(stream, device, 1, CU_STREAM_WAIT_VALUE_GEQ));
  CU(launch(load_through, stream, result, device + 64));
  data[5] = 77;
  const int* const pointer = data + 5;
  std::memcpy(words + 16, &pointer, sizeof pointer);
  store_value(words, 1);
  CU(cuStreamSynchronize(stream));
  HOLDS(result_word() == 77);
  CU(cuMemFreeHost(data));
}

void all_of(int* words) {
  step("a value before the data");
  value_in_one_region_with_data(words, 0);
  step("a value between the data");
  std::memset(words, 0, kWords * sizeof(int));
  value_in_one_region_with_data(words, kWords / 2);
  step("a value of several bytes");
  value_whole(words);
  step("a value after a pointer");
  value_after_pointer(words);
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  const CUmodule module = load_kernels();
  load = kernel_of(module, "load");
  load_through = kernel_of(module, "load_through");
  stream = make_stream();
  result = device_memory(64);
  // Kernels are loaded at their first launch.
  CU(cuMemcpyHtoD(result + 16, &result, sizeof result));
  CU(launch(load, stream, result, result));
  CU(launch(load_through, stream, result, result + 16));
  CU(cuStreamSynchronize(stream));
  int* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kWords * sizeof(int),
                    CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(pinned, 0, kWords * sizeof(int));
  all_of(pinned);
  CU(cuMemFreeHost(pinned));
  std::vector<int> registered(kWords + 8);
  CU(cuMemHostRegister(registered.data() + 2, kWords * sizeof(int), CU_MEMHOSTREGISTER_DEVICEMAP));
  all_of(registered.data() + 2);
  CU(cuMemHostUnregister(registered.data() + 2));
  right();
}
