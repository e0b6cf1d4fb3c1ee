// The host pointer of pinned memory is a device pointer, too, wherever the driver takes one, and
// where kernels find it.
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

CUfunction spin, store, load, load_through, store_through;
CUstream stream;
CUdeviceptr target;

// Fresh pinned memory each time: no device has heard of its address yet.
struct Pinned {
  explicit Pinned(unsigned flags = 0, size_t bytes = 64 << 10) {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&words), bytes, flags));
    std::memset(words, 0, bytes);
  }
  ~Pinned() { CU(cuMemFreeHost(words)); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  CUdeviceptr at(int index) const { return reinterpret_cast<CUdeviceptr>(words + index); }
  int* words = nullptr;
};

int target_word(int index = 0) {
  int value = -1;
  CU(cuMemcpyDtoHAsync(&value, target + static_cast<size_t>(index) * sizeof(int), sizeof value,
                       stream));
  CU(cuStreamSynchronize(stream));
  return value;
}

void linear_copies(unsigned flags) {
  const Pinned from(flags), to(flags);
  from.words[1] = 11;
  CU(cuMemcpyDtoDAsync(target, from.at(1), sizeof(int), stream));
  HOLDS(target_word() == 11);
  CU(cuMemcpyDtoDAsync(to.at(3), target, sizeof(int), stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(to.words[3] == 11 && to.words[2] == 0 && to.words[4] == 0);
  from.words[1] = 12;
  CU(cuMemcpyDtoD(to.at(5), from.at(1), sizeof(int)));
  CU(cuStreamSynchronize(nullptr));
  HOLDS(to.words[5] == 12 && to.words[3] == 11);
}

// The one side is host memory as device memory, the other one host memory as such.
void device_side_of_host_copies(int* words) {
  const auto at = [words](int index) { return reinterpret_cast<CUdeviceptr>(words + index); };
  const int source[] = {21, 22, 23, 24};
  CU(cuMemcpyHtoD(at(1), source, sizeof(int)));
  CU(cuCtxSynchronize());
  HOLDS(words[1] == 21 && words[0] == 0 && words[2] == 0);
  int result[4] = {};
  words[2] = 25;
  CU(cuMemcpyDtoH(result, at(1), 2 * sizeof(int)));
  HOLDS(result[0] == 21 && result[1] == 25);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = source;
  rows.srcPitch = 2 * sizeof(int);
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = at(16);
  rows.dstPitch = 8 * sizeof(int);
  rows.WidthInBytes = 2 * sizeof(int);
  rows.Height = 2;
  CU(cuMemcpy2DAsync(&rows, stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(words[16] == 21 && words[17] == 22 && words[18] == 0 && words[24] == 23 && words[25] == 24);
  words[17] = 26;
  CU(cuMemcpyDtoHAsync(result, at(16), 2 * sizeof(int), stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(result[0] == 21 && result[1] == 26);
}

void device_side_of_host_copies(unsigned flags) {
  const Pinned pinned(flags);
  device_side_of_host_copies(pinned.words);
  std::vector<int> registered(1000);
  CU(cuMemHostRegister(registered.data() + 3, 900 * sizeof(int), 0));
  device_side_of_host_copies(registered.data() + 3);
  CU(cuMemHostUnregister(registered.data() + 3));
}

void box_copies(unsigned flags) {
  const Pinned from(flags), to(flags);
  for (int i = 0; i < 64; ++i) from.words[i] = i;
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.srcDevice = from.at(0);
  flat.dstDevice = to.at(0);
  flat.srcPitch = 8 * sizeof(int);
  flat.dstPitch = 16 * sizeof(int);
  flat.WidthInBytes = 4 * sizeof(int);
  flat.Height = 5;
  CU(cuMemcpy2DAsync(&flat, stream));
  CU(cuStreamSynchronize(stream));
  for (int row = 0; row < 5; ++row) {
    for (int i = 0; i < 16; ++i) HOLDS(to.words[16 * row + i] == (i < 4 ? 8 * row + i : 0));
  }
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = from.at(0);
  box.dstDevice = target;
  box.srcPitch = box.dstPitch = 4 * sizeof(int);
  box.srcHeight = box.dstHeight = 2;
  box.WidthInBytes = 4 * sizeof(int);
  box.Height = 2;
  box.Depth = 3;
  CU(cuMemcpy3DAsync(&box, stream));
  for (int i = 0; i < 24; i += 5) HOLDS(target_word(i) == i);
}

void memory_operations(unsigned flags) {
  const Pinned memory(flags);
  CU(cuStreamWriteValue32(stream, memory.at(1), 5, 0));
  CU(cuStreamWriteValue64(stream, memory.at(2), 0x1234567890, 0));
  CU(cuMemsetD32Async(memory.at(4), 7, 3, stream));
  CU(cuStreamSynchronize(stream));
  long long wide;
  std::memcpy(&wide, memory.words + 2, sizeof wide);
  HOLDS(memory.words[0] == 0 && memory.words[1] == 5 && wide == 0x1234567890);
  HOLDS(memory.words[4] == 7 && memory.words[6] == 7 && memory.words[7] == 0);
  // The value is there before the stream waits for it, and before the host waits for the stream.
  memory.words[8] = 3;
  CU(cuStreamWaitValue32(stream, memory.at(8), 3, CU_STREAM_WAIT_VALUE_GEQ));
  CU(launch(store, stream, memory.at(9), 1));
  CU(cuStreamSynchronize(stream));
  HOLDS(memory.words[9] == 1);
  CU(cuStreamWaitValue32(stream, memory.at(8), 4, CU_STREAM_WAIT_VALUE_GEQ));
  CU(launch(store, stream, memory.at(9), 2));
  memory.words[8] = 4;
  CU(cuStreamSynchronize(stream));
  HOLDS(memory.words[9] == 2);
}

// The pointer lies in device memory, where a kernel finds it.
void pointers_in_device_memory(unsigned flags) {
  const Pinned first(flags), second(flags), third(flags);
  const CUdeviceptr table = device_memory(4096);
  CUdeviceptr entries[3] = {first.at(4), second.at(5), 0};
  CU(cuMemcpyHtoDAsync(table, entries, sizeof entries, stream));
  first.words[4] = 17;
  CU(launch(load_through, stream, target, table));
  HOLDS(target_word() == 17);
  CU(launch(store_through, stream, table + 8, 18));
  CU(cuStreamSynchronize(stream));
  HOLDS(second.words[5] == 18);
  // Written by the stream itself.
  CU(cuStreamWriteValue64(stream, table + 16, third.at(6), 0));
  CU(launch(store_through, stream, table + 16, 19));
  CU(cuStreamSynchronize(stream));
  HOLDS(third.words[6] == 19);
  CU(cuMemFree(table));
}

// A list in pinned memory: only its head is named in a launch.
void pointers_in_pinned_memory(unsigned flags) {
  const Pinned head(flags), next(flags);
  const CUdeviceptr there = next.at(7);
  std::memcpy(head.words + 2, &there, sizeof there);
  next.words[7] = 23;
  CU(launch(load_through, stream, target, head.at(2)));
  HOLDS(target_word() == 23);
  CU(launch(store_through, stream, head.at(2), 24));
  CU(cuStreamSynchronize(stream));
  HOLDS(next.words[7] == 24);
}

// Memory that a kernel writes is read by copies behind it, and the other way round, in the order of
// the stream and without a wait of the host.
void order_with_copies(unsigned flags) {
  const Pinned memory(flags);
  const CUdeviceptr source = device_memory(64);
  CU(cuMemsetD32Async(source, 0, 16, stream));
  for (int round = 1; round <= 10; ++round) {
    CU(launch(spin, stream, 500u));
    CU(launch(store, stream, memory.at(0), round));
    CU(cuMemcpyHtoDAsync(target, memory.words, sizeof(int), stream));
    HOLDS(target_word() == round);
    // Zeros over what a kernel wrote, and a kernel that reads them.
    CU(launch(store, stream, memory.at(1), round));
    CU(cuMemcpyDtoHAsync(memory.words + 1, source, sizeof(int), stream));
    CU(launch(load, stream, target, memory.at(1)));
    HOLDS(target_word() == 0);
    HOLDS(memory.words[1] == 0 && memory.words[0] == round);
  }
  CU(cuMemFree(source));
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin");
  store = kernel_of(module, "store");
  load = kernel_of(module, "load");
  load_through = kernel_of(module, "load_through");
  store_through = kernel_of(module, "store_through");
  stream = make_stream();
  target = device_memory(4096);
  for (const unsigned flags : {0u, unsigned{CU_MEMHOSTALLOC_DEVICEMAP}}) {
    step("linear copies");
    linear_copies(flags);
    step("copies between the host and host memory as device memory");
    device_side_of_host_copies(flags);
    step("copies of boxes");
    box_copies(flags);
    step("stream memory operations");
    memory_operations(flags);
    step("pointers in device memory");
    pointers_in_device_memory(flags);
    step("pointers in pinned memory");
    pointers_in_pinned_memory(flags);
    step("order with copies");
    order_with_copies(flags);
  }
  right();
}
