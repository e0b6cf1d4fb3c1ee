// Pinned host memory in use: asynchronous copies in stream order, kernels that work on it in place,
// many small blocks, shapes, threads, and that freeing waits.
#include <atomic>
#include <thread>

#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

CUfunction function(const char* name) {
  static CUmodule module = [] {
    CUmodule loaded;
    NEED(cuModuleLoadData(&loaded, kKernels));
    return loaded;
  }();
  CUfunction found;
  NEED(cuModuleGetFunction(&found, module, name));
  return found;
}

template <typename T>
T* pinned(size_t count, unsigned flags = 0) {
  void* memory = nullptr;
  NEED(cuMemHostAlloc(&memory, count * sizeof(T), flags));
  return static_cast<T*>(memory);
}

CUstream make_stream() {
  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

void add(CUstream stream, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, unsigned n) {
  void* arguments[] = {&a, &b, &c, &n};
  NEED(cuLaunchKernel(function("add"), (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, arguments,
                      nullptr));
}

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// Copies up, a kernel, copies down, in two streams at once; the source is overwritten as soon as
// its event says so.
void overlapped() {
  const unsigned n = 70000, rounds = 12;
  struct Lane {
    CUstream stream = make_stream();
    unsigned *in = pinned<unsigned>(n), *out = pinned<unsigned>(n);
    CUdeviceptr device = 0;
    CUevent taken, done;
  } lanes[2];
  for (Lane& lane : lanes) {
    NEED(cuMemAlloc(&lane.device, n * 4));
    NEED(cuEventCreate(&lane.taken, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&lane.done, CU_EVENT_DISABLE_TIMING));
  }
  long wrong = 0;
  for (unsigned r = 0; r < rounds; ++r) {
    for (unsigned l = 0; l < 2; ++l) {
      Lane& lane = lanes[l];
      for (unsigned i = 0; i < n; ++i) lane.in[i] = i * 7 + r * 1000 + l;
      NEED(cuMemcpyHtoDAsync(lane.device, lane.in, n * 4, lane.stream));
      NEED(cuEventRecord(lane.taken, lane.stream));
      add(lane.stream, lane.device, lane.device, lane.device, n);
      NEED(cuMemcpyDtoHAsync(lane.out, lane.device, n * 4, lane.stream));
      NEED(cuEventRecord(lane.done, lane.stream));
    }
    for (Lane& lane : lanes) {
      NEED(cuEventSynchronize(lane.taken));
      std::memset(lane.in, 0xee, n * 4);
    }
    for (unsigned l = 0; l < 2; ++l) {
      NEED(cuEventSynchronize(lanes[l].done));
      for (unsigned i = 0; i < n; ++i) wrong += lanes[l].out[i] != 2 * (i * 7 + r * 1000 + l);
    }
  }
  VALUE(wrong);
  for (Lane& lane : lanes) {
    NEED(cuMemFree(lane.device));
    SHOW(cuMemFreeHost(lane.in));
    SHOW(cuMemFreeHost(lane.out));
    NEED(cuStreamDestroy(lane.stream));
  }
}

void add_hundred(void* data) {
  auto* values = static_cast<unsigned*>(data);
  for (unsigned i = 0; i < 1000; ++i) values[i] += 100;
}

// Everything that touches one pinned buffer keeps the order of its stream: copies to it and from
// it, a function of the host, a kernel.
void ordered() {
  const unsigned n = 1000;
  CUstream stream = make_stream();
  unsigned *in = pinned<unsigned>(n), *between = pinned<unsigned>(n), *out = pinned<unsigned>(n);
  CUdeviceptr a, b;
  NEED(cuMemAlloc(&a, n * 4));
  NEED(cuMemAlloc(&b, n * 4));
  long wrong = 0;
  for (unsigned r = 0; r < 20; ++r) {
    for (unsigned i = 0; i < n; ++i) in[i] = i + r;
    std::memset(between, 0, n * 4);
    NEED(cuMemcpyHtoDAsync(a, in, n * 4, stream));
    NEED(cuMemcpyDtoHAsync(between, a, n * 4, stream));
    NEED(cuLaunchHostFunc(stream, add_hundred, between));
    NEED(cuMemcpyHtoDAsync(b, between, n * 4, stream));
    add(stream, address(between), b, b, n);
    NEED(cuMemcpyDtoHAsync(out, b, n * 4, stream));
    NEED(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < n; ++i) wrong += out[i] != 2 * (i + r + 100);
  }
  VALUE(wrong);
  // Synchronous copies see what is before them and are finished when they return.
  for (unsigned i = 0; i < n; ++i) in[i] = i;
  NEED(cuMemcpyHtoD(a, in, n * 4));
  std::memset(in, 0, n * 4);
  NEED(cuMemcpyDtoH(out, a, n * 4));
  for (unsigned i = 0; i < n; ++i) wrong += out[i] != i;
  VALUE(wrong);
  NEED(cuMemFree(a));
  NEED(cuMemFree(b));
  for (unsigned* memory : {in, between, out}) SHOW(cuMemFreeHost(memory));
  SHOW(cuMemFreeHost(in));
  NEED(cuStreamDestroy(stream));
}

// A kernel reads two pinned buffers and writes a third, by their own addresses and by those the
// driver gives.
void in_place(unsigned n) {
  unsigned *a = pinned<unsigned>(n),
           *b = pinned<unsigned>(n, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE),
           *c = pinned<unsigned>(n, CU_MEMHOSTALLOC_WRITECOMBINED);
  for (unsigned i = 0; i < n; ++i) a[i] = i, b[i] = 2 * i;
  add(nullptr, address(a), address(b), address(c), n);
  NEED(cuStreamSynchronize(nullptr));
  long wrong = 0;
  for (unsigned i = 0; i < n; ++i) wrong += c[i] != 3 * i;
  VALUE(wrong);
  CUdeviceptr on_device[3];
  SHOW(cuMemHostGetDevicePointer(&on_device[0], a, 0));
  SHOW(cuMemHostGetDevicePointer(&on_device[1], b, 0));
  SHOW(cuMemHostGetDevicePointer(&on_device[2], c + 1, 0));
  b[0] = 77;
  add(nullptr, on_device[0], on_device[1], on_device[2], n - 1);
  NEED(cuCtxSynchronize());
  VALUE(c[1]);
  VALUE(c[n - 1] == 3 * (n - 2));
  unsigned type = 0, flags = 0;
  CUdeviceptr seen = 0;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(a + 5)));
  VALUE(type);
  SHOW(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address(a + 5)));
  VALUE(seen - on_device[0]);
  SHOW(cuMemHostGetFlags(&flags, b));
  // for the other flags the driver may answer for the block that it cut this from
  VALUE(flags & CU_MEMHOSTALLOC_DEVICEMAP);
  for (unsigned* memory : {a, b, c}) SHOW(cuMemFreeHost(memory));
  SHOW(cuMemHostGetDevicePointer(&seen, a, 0));
}

// Small blocks do not touch each other, whatever the order in which they come and go.
void many_small() {
  struct Block {
    unsigned char* memory;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Block> blocks;
  CUdeviceptr device;
  NEED(cuMemAlloc(&device, 1 << 16));
  uint32_t random = 12345;
  const auto next = [&random] { return random = random * 1664525u + 1013904223u, random >> 8; };
  long wrong = 0;
  const auto check = [&wrong](const Block& block) {
    for (size_t i = 0; i < block.bytes; ++i) wrong += block.memory[i] != block.mark;
  };
  for (int step = 0; step < 1500; ++step) {
    if (blocks.size() < 200 || next() % 2 == 0) {
      Block block{nullptr, 1 + next() % (step % 16 == 0 ? 60000 : 5000),
                  static_cast<unsigned char>(next())};
      block.memory = pinned<unsigned char>(block.bytes);
      wrong += address(block.memory) % 256 != 0;
      // Written by the device, so that it is known there too.
      NEED(cuMemsetD8(device, block.mark, block.bytes));
      NEED(cuMemcpyDtoH(block.memory, device, block.bytes));
      blocks.push_back(block);
    } else {
      const size_t which = next() % blocks.size();
      check(blocks[which]);
      NEED(cuMemFreeHost(blocks[which].memory));
      blocks[which] = blocks.back();
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) check(block);
  for (const Block& block : blocks) NEED(cuMemFreeHost(block.memory));
  VALUE(wrong);
  SHOW(cuMemFreeHost(blocks[0].memory));
  NEED(cuMemFree(device));
}

// Boxes with pitches, from the inside of pinned memory to the inside of pinned memory.
void shapes() {
  const size_t pitch = 96, rows = 12, slices = 5, width = 41, height = 7, depth = 3;
  unsigned char *in = pinned<unsigned char>(pitch * rows * slices),
                *out = pinned<unsigned char>(pitch * rows * slices);
  for (size_t i = 0; i < pitch * rows * slices; ++i)
    in[i] = static_cast<unsigned char>(i * 13 + i / 96);
  CUdeviceptr device;
  size_t device_pitch;
  NEED(cuMemAllocPitch(&device, &device_pitch, width, height * depth, 4));
  CUDA_MEMCPY3D up{};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = in;
  up.srcPitch = pitch;
  up.srcHeight = rows;
  up.srcXInBytes = 11, up.srcY = 2, up.srcZ = 1;
  up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  up.dstDevice = device;
  up.dstPitch = device_pitch;
  up.dstHeight = height;
  up.WidthInBytes = width, up.Height = height, up.Depth = depth;
  CUDA_MEMCPY3D down{};
  down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  down.srcDevice = device;
  down.srcPitch = device_pitch;
  down.srcHeight = height;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = out;
  down.dstPitch = pitch;
  down.dstHeight = rows;
  down.dstXInBytes = 1, down.dstY = 4, down.dstZ = 2;
  down.WidthInBytes = width, down.Height = height, down.Depth = depth;
  for (const bool wait : {false, true}) {
    std::memset(out, 9, pitch * rows * slices);
    SHOW(wait ? cuMemcpy3D(&up) : cuMemcpy3DAsync(&up, nullptr));
    SHOW(wait ? cuMemcpy3D(&down) : cuMemcpy3DAsync(&down, nullptr));
    if (!wait) NEED(cuStreamSynchronize(nullptr));
    std::printf("  box %08x\n", checksum(out, pitch * rows * slices));
  }

  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.srcDevice = device;
  flat.srcPitch = device_pitch;
  flat.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  flat.dstDevice = address(out);
  flat.dstPitch = pitch;
  flat.dstXInBytes = 50;
  flat.WidthInBytes = 30, flat.Height = height;
  SHOW(cuMemcpy2DAsync(&flat, nullptr));
  NEED(cuStreamSynchronize(nullptr));
  std::printf("  plane %08x\n", checksum(out, pitch * rows * slices));
  // Tight on one side only, a single row, a single byte at the very end.
  SHOW(cuMemcpyHtoDAsync(device, in + 77, width * height, nullptr));
  SHOW(cuMemcpyDtoHAsync(out + pitch * rows * slices - 1, device + 5, 1, nullptr));
  SHOW(cuMemcpyAsync(address(out + 3), device, width, nullptr));
  NEED(cuStreamSynchronize(nullptr));
  std::printf("  lines %08x\n", checksum(out, pitch * rows * slices));
  // Between pinned buffers.
  SHOW(cuMemcpyAsync(address(out + 100), address(in + 5), 700, nullptr));
  NEED(cuStreamSynchronize(nullptr));
  std::printf("  inside the host %08x\n", checksum(out, pitch * rows * slices));
  SHOW(cuMemsetD8(address(out), 0x33, 64));
  NEED(cuCtxSynchronize());
  VALUE(out[63]);
  NEED(cuMemFree(device));
  NEED(cuMemFreeHost(in));
  NEED(cuMemFreeHost(out));
}

void threads(CUcontext context) {
  std::atomic<long> wrong{0};
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < 6; ++t) {
    workers.emplace_back([&, t] {
      NEED(cuCtxSetCurrent(context));
      CUstream stream = make_stream();
      for (unsigned r = 0; r < 30; ++r) {
        const unsigned n = r % 3 == 0 ? 300000 : 500 + 31 * r;
        unsigned *in = pinned<unsigned>(n), *out = pinned<unsigned>(n);
        CUdeviceptr device;
        NEED(cuMemAlloc(&device, n * 4));
        for (unsigned i = 0; i < n; ++i) in[i] = i * (t + 1) + r;
        NEED(cuMemcpyHtoDAsync(device, in, n * 4, stream));
        add(stream, device, address(in), device, n);
        NEED(cuMemcpyDtoHAsync(out, device, n * 4, stream));
        NEED(cuStreamSynchronize(stream));
        for (unsigned i = 0; i < n; ++i) wrong += out[i] != 2 * (i * (t + 1) + r);
        NEED(cuMemFree(device));
        NEED(cuMemFreeHost(in));
        NEED(cuMemFreeHost(out));
      }
      NEED(cuStreamDestroy(stream));
    });
  }
  for (std::thread& worker : workers) worker.join();
  VALUE(wrong.load());
}

// Memory that a kernel or a copy still uses is not given back before they are done.
void free_waits(size_t bytes) {
  CUstream stream = make_stream();
  CUevent done;
  NEED(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  auto* memory = pinned<unsigned char>(bytes);
  CUdeviceptr where = address(memory), device;
  NEED(cuMemAlloc(&device, bytes));
  unsigned n = 200000;
  void* arguments[] = {&where, &n};
  NEED(cuLaunchKernel(function("spin"), 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  NEED(cuMemcpyHtoDAsync(device, memory, bytes, stream));
  NEED(cuEventRecord(done, stream));
  SHOW(cuMemFreeHost(memory));
  SHOW(cuEventQuery(done));
  unsigned counted = 0;
  NEED(cuMemcpyDtoH(&counted, device, 4));
  VALUE(counted);
  NEED(cuMemFree(device));
  NEED(cuStreamDestroy(stream));
}

// Pinned memory of a context that is gone does not disturb the next one.
void across_contexts() {
  CUcontext second = make_context();
  auto* memory = pinned<unsigned>(5000);
  CUdeviceptr device;
  NEED(cuMemAlloc(&device, 20000));
  for (unsigned i = 0; i < 5000; ++i) memory[i] = i;
  SHOW(cuMemcpyHtoDAsync(device, memory, 20000, nullptr));
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxDestroy(second));
  CUcontext third = make_context();
  auto *in = pinned<unsigned>(5000), *out = pinned<unsigned>(5000);
  for (unsigned i = 0; i < 5000; ++i) in[i] = 3 * i;
  NEED(cuMemAlloc(&device, 20000));
  SHOW(cuMemcpyHtoDAsync(device, in, 20000, nullptr));
  SHOW(cuMemcpyDtoHAsync(out, device, 20000, nullptr));
  SHOW(cuCtxSynchronize());
  VALUE(std::memcmp(in, out, 20000));
  SHOW(cuMemFreeHost(in));
  SHOW(cuMemFreeHost(out));
  SHOW(cuCtxDestroy(third));
}

}  // namespace

int main() {
  CUcontext context = make_context();
  overlapped();
  ordered();
  in_place(3000);
  in_place(600000);
  many_small();
  shapes();
  threads(context);
  free_waits(4096);
  free_waits(3 << 20);
  across_contexts();
  return 0;
}
