// An asynchronous copy between the device and memory that the driver knows (pinned or registered)
// does not wait in the call for the work before it: here for a host function that waits for the
// calling thread. The bytes are right once the stream is.
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 6u << 20;
constexpr size_t kSmall = 4096, kMiddle = 200 << 10, kLarge = 5u << 20;

std::atomic<bool> released;

void CUDA_CB wait_for_release(void*) {
  while (!released) usleep(200);
}

struct Host {
  const char* name;
  unsigned char* memory;
};

CUstream stream;
CUdeviceptr device;

unsigned char pattern(size_t i, unsigned seed) {
  return static_cast<unsigned char>(i * 31 + (i >> 8) * 7 + seed);
}

// A stream that is held, a call that must return, and the stream goes on. A call that does not
// return is helped after 5 s.
void holds_nobody_up(const char* memory, const char* shape, const char* way,
                     const std::function<void()>& call) {
  const std::string name = std::string(way) + " " + memory + ", " + shape;
  step(name.c_str());
  released = false;
  std::atomic<bool> returned{false}, helped{false};
  CU(cuLaunchHostFunc(stream, wait_for_release, nullptr));
  std::thread helper([&] {
    for (int i = 0; i < 5000 && !returned; ++i) usleep(1000);
    helped = !returned;
    released = true;
  });
  call();
  returned = true;
  helper.join();
  CU(cuStreamSynchronize(stream));
  if (helped) wrong("the call waited for its stream: %s", name.c_str());
}

struct Shape {
  const char* name;
  size_t width, height, depth, host_pitch, device_pitch, host_rows, device_rows;

  size_t host_at(size_t x, size_t y, size_t z) const {
    return (z * host_rows + y) * host_pitch + x;
  }
  size_t device_at(size_t x, size_t y, size_t z) const {
    return (z * device_rows + y) * device_pitch + x;
  }
};

void copy_box(bool to_device, void* host, const Shape& shape) {
  if (shape.depth == 1) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    (to_device ? copy.dstDevice : copy.srcDevice) = device;
    if (to_device) {
      copy.srcHost = host;
    } else {
      copy.dstHost = host;
    }
    copy.srcPitch = to_device ? shape.host_pitch : shape.device_pitch;
    copy.dstPitch = to_device ? shape.device_pitch : shape.host_pitch;
    copy.WidthInBytes = shape.width;
    copy.Height = shape.height;
    CU(cuMemcpy2DAsync(&copy, stream));
    return;
  }
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  (to_device ? copy.dstDevice : copy.srcDevice) = device;
  if (to_device) {
    copy.srcHost = host;
  } else {
    copy.dstHost = host;
  }
  copy.srcPitch = to_device ? shape.host_pitch : shape.device_pitch;
  copy.dstPitch = to_device ? shape.device_pitch : shape.host_pitch;
  copy.srcHeight = to_device ? shape.host_rows : shape.device_rows;
  copy.dstHeight = to_device ? shape.device_rows : shape.host_rows;
  copy.WidthInBytes = shape.width;
  copy.Height = shape.height;
  copy.Depth = shape.depth;
  CU(cuMemcpy3DAsync(&copy, stream));
}

void lines(const Host& host, size_t bytes, const char* name, unsigned seed) {
  for (size_t i = 0; i < bytes; ++i) host.memory[i] = pattern(i, seed);
  CU(cuMemsetD8Async(device, 0, kBytes, stream));
  holds_nobody_up(host.name, name, "to the device from",
                  [&] { CU(cuMemcpyHtoDAsync(device, host.memory, bytes, stream)); });
  std::memset(host.memory, 0, bytes);
  holds_nobody_up(host.name, name, "from the device to",
                  [&] { CU(cuMemcpyDtoHAsync(host.memory, device, bytes, stream)); });
  for (size_t i = 0; i < bytes; ++i) HOLDS(host.memory[i] == pattern(i, seed));
  // Any direction, by what the addresses are.
  const auto address = reinterpret_cast<CUdeviceptr>(host.memory);
  std::memset(host.memory, 0, bytes);
  holds_nobody_up(host.name, name, "of unnamed direction to",
                  [&] { CU(cuMemcpyAsync(address, device, bytes, stream)); });
  for (size_t i = 0; i < bytes; ++i) HOLDS(host.memory[i] == pattern(i, seed));
}

void boxes(const Host& host, const Shape& shape, unsigned seed) {
  const auto each = [&shape](auto&& visit) {
    for (size_t z = 0; z < shape.depth; ++z)
      for (size_t y = 0; y < shape.height; ++y)
        for (size_t x = 0; x < shape.width; ++x) visit(x, y, z);
  };
  std::vector<unsigned char> flat(kBytes);
  std::memset(host.memory, 0, kBytes);
  each([&](size_t x, size_t y, size_t z) {
    host.memory[shape.host_at(x, y, z)] = pattern(shape.device_at(x, y, z), seed);
  });
  CU(cuMemsetD8Async(device, 9, kBytes, stream));
  holds_nobody_up(host.name, shape.name, "to the device from",
                  [&] { copy_box(true, host.memory, shape); });
  CU(cuMemcpyDtoH(flat.data(), device, kBytes));
  each([&](size_t x, size_t y, size_t z) {
    const size_t at = shape.device_at(x, y, z);
    HOLDS(flat[at] == pattern(at, seed));
  });
  std::memset(host.memory, 5, kBytes);
  holds_nobody_up(host.name, shape.name, "from the device to",
                  [&] { copy_box(false, host.memory, shape); });
  std::vector<unsigned char> expected(kBytes, 5);
  each([&](size_t x, size_t y, size_t z) {
    expected[shape.host_at(x, y, z)] = pattern(shape.device_at(x, y, z), seed);
  });
  HOLDS(std::memcmp(host.memory, expected.data(), kBytes) == 0);
}

void batches(const Host& host, unsigned seed) {
  constexpr size_t kEach = 40 << 10;
  for (size_t i = 0; i < 2 * kEach; ++i) host.memory[i] = pattern(i, seed);
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t from_item = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(host.memory);
  CUdeviceptr on_device[] = {device, device + kEach}, on_host[] = {address, address + kEach};
  size_t sizes[] = {kEach, kEach};
  holds_nobody_up(host.name, "a batch", "to the device from", [&] {
    CU(cuMemcpyBatchAsync(on_device, on_host, sizes, 2, &attributes, &from_item, 1, stream));
  });
  std::memset(host.memory, 0, 2 * kEach);
  holds_nobody_up(host.name, "a batch", "from the device to", [&] {
    CU(cuMemcpyBatchAsync(on_host, on_device, sizes, 2, &attributes, &from_item, 1, stream));
  });
  for (size_t i = 0; i < 2 * kEach; ++i) HOLDS(host.memory[i] == pattern(i, seed));
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  stream = make_stream();
  device = device_memory(kBytes);
  void *pinned = nullptr, *own = std::aligned_alloc(4096, kBytes);
  CU(cuMemHostAlloc(&pinned, kBytes, 0));
  CU(cuMemHostRegister(own, kBytes, 0));
  const Host hosts[] = {{"pinned memory", static_cast<unsigned char*>(pinned)},
                        {"registered memory", static_cast<unsigned char*>(own)}};
  const Shape shapes[] = {
      {"rows with gaps", 100, 70, 1, 128, 160, 70, 70},
      {"many rows with gaps", 3000, 1000, 1, 4000, 3100, 1000, 1000},
      {"slices with gaps", 33, 9, 11, 40, 64, 12, 10},
      {"slices whose pitch is no multiple of the rows", 500, 60, 30, 512, 520, 61, 64},
  };
  unsigned seed = 1;
  for (const Host& host : hosts) {
    lines(host, kSmall, "4 KiB", ++seed);
    lines(host, kMiddle, "200 KiB", ++seed);
    lines(host, kLarge, "5 MiB", ++seed);
    for (const Shape& shape : shapes) boxes(host, shape, ++seed);
    batches(host, ++seed);
  }
  right();
}
