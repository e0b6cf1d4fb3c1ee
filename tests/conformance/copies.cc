// Copies in all directions: 1D, 2D and 3D, sync and async, with their errors.
#include <functional>
#include <utility>

#include "tests/conformance/conformance.h"

namespace {

CUDA_MEMCPY2D host_to_device(const void* host, size_t host_pitch, CUdeviceptr device, size_t pitch,
                             size_t width, size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = host_pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

CUDA_MEMCPY2D device_to_host(CUdeviceptr device, size_t pitch, void* host, size_t host_pitch,
                             size_t width, size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = device;
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  copy.dstPitch = host_pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

void one_dimension() {
  const size_t n = 3 << 20;
  std::vector<unsigned char> in(n), out(n);
  for (size_t i = 0; i < n; ++i) in[i] = static_cast<unsigned char>(i * 31 + (i >> 9));
  CUdeviceptr a, b;
  NEED(cuMemAlloc(&a, n));
  NEED(cuMemAlloc(&b, n));
  SHOW(cuMemcpyHtoD(a, in.data(), n));
  SHOW(cuMemcpyDtoD(b + 5, a + 1, n - 10));
  SHOW(cuMemcpyDtoH(out.data(), b + 5, n - 10));
  VALUE(std::memcmp(out.data(), in.data() + 1, n - 10));
  SHOW(cuMemcpy(b, a, n));                                          // unified: device to device
  SHOW(cuMemcpy(reinterpret_cast<CUdeviceptr>(out.data()), b, n));  // unified: device to host
  VALUE(checksum(out) == checksum(in));
  SHOW(
      cuMemcpy(b, reinterpret_cast<CUdeviceptr>(in.data() + 1), n - 1));  // unified: host to device
  SHOW(cuMemcpy(reinterpret_cast<CUdeviceptr>(out.data()), reinterpret_cast<CUdeviceptr>(in.data()),
                100));  // host to host
  VALUE(std::memcmp(out.data(), in.data(), 100));

  SHOW(cuMemcpy(0, a, 100));
  SHOW(cuMemcpy(b, 0, 100));
  SHOW(cuMemcpyPeer(b, nullptr, 0, nullptr, 100));
  SHOW(cuMemcpyPeer(b, nullptr, a, nullptr, 100));

  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<unsigned char> source(in);
  SHOW(cuMemcpyHtoDAsync(a, source.data(), n, stream));
  std::memset(source.data(), 0, n);  // pageable memory was taken when the call returned
  SHOW(cuMemcpyDtoDAsync(b, a, n, stream));
  SHOW(cuMemcpyDtoHAsync(out.data(), b, n, stream));
  SHOW(cuStreamSynchronize(stream));
  VALUE(checksum(out) == checksum(in));
  SHOW(cuStreamDestroy(stream));
  SHOW(cuMemFree(a));
  SHOW(cuMemFree(b));
}

void two_dimensions() {
  const size_t width = 93, height = 40, host_pitch = 128;
  std::vector<unsigned char> in(host_pitch * height), out(host_pitch * height, 7);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 17);
  CUdeviceptr a;
  size_t pitch;
  NEED(cuMemAllocPitch(&a, &pitch, width, height, 4));
  CUDA_MEMCPY2D up = host_to_device(in.data(), host_pitch, a, pitch, width, height);
  SHOW(cuMemcpy2D(&up));
  CUDA_MEMCPY2D down = device_to_host(a, pitch, out.data(), host_pitch, width, height);
  SHOW(cuMemcpy2DUnaligned(&down));
  long wrong = 0;
  for (size_t i = 0; i < out.size(); ++i) wrong += out[i] != (i % host_pitch < width ? in[i] : 7);
  VALUE(wrong);

  // A window: offsets on both sides.
  std::fill(out.begin(), out.end(), 7);
  down.srcXInBytes = 10;
  down.srcY = 3;
  down.dstXInBytes = 20;
  down.dstY = 5;
  down.WidthInBytes = 30;
  down.Height = 11;
  SHOW(cuMemcpy2DAsync(&down, nullptr));
  SHOW(cuStreamSynchronize(nullptr));
  std::printf("  window %08x\n", checksum(out));

  CUDA_MEMCPY2D bad = up;
  bad.dstPitch = width - 1;
  SHOW(cuMemcpy2D(&bad));
  bad = up;
  bad.Height = 0;
  SHOW(cuMemcpy2D(&bad));
  bad = up;
  bad.dstMemoryType = static_cast<CUmemorytype>(77);
  SHOW(cuMemcpy2D(&bad));
  SHOW(cuMemFree(a));
}

void three_dimensions() {
  const size_t width = 60, height = 9, depth = 7, pitch = 256, rows = 12;
  std::vector<unsigned char> in(width * height * depth), out(in.size(), 1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7 + 3);
  CUdeviceptr a, b;
  NEED(cuMemAlloc(&a, pitch * rows * depth));
  NEED(cuMemAlloc(&b, pitch * rows * depth));
  CUDA_MEMCPY3D up{};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = in.data();
  up.srcPitch = width;
  up.srcHeight = height;
  up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  up.dstDevice = a;
  up.dstPitch = pitch;
  up.dstHeight = rows;
  up.WidthInBytes = width;
  up.Height = height;
  up.Depth = depth;
  SHOW(cuMemcpy3D(&up));
  CUDA_MEMCPY3D across{};
  across.srcMemoryType = across.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  across.srcDevice = a;
  across.dstDevice = b;
  across.srcPitch = across.dstPitch = pitch;
  across.srcHeight = across.dstHeight = rows;
  across.WidthInBytes = width;
  across.Height = height;
  across.Depth = depth;
  SHOW(cuMemcpy3DAsync(&across, nullptr));
  CUDA_MEMCPY3D down{};
  down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  down.srcDevice = b;
  down.srcPitch = pitch;
  down.srcHeight = rows;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = out.data();
  down.dstPitch = width;
  down.dstHeight = height;
  down.WidthInBytes = width;
  down.Height = height;
  down.Depth = depth;
  SHOW(cuMemcpy3D(&down));
  VALUE(checksum(out) == checksum(in));
  down.srcZ = 2;
  down.srcY = 1;
  down.srcXInBytes = 4;
  down.Depth = 3;
  down.Height = 5;
  down.WidthInBytes = 11;
  std::fill(out.begin(), out.end(), 1);
  SHOW(cuMemcpy3D(&down));
  std::printf("  box %08x\n", checksum(out));
  SHOW(cuMemFree(a));
  SHOW(cuMemFree(b));
}

// Slices that overlap, since they have fewer rows than are copied; small and large, from and to
// pageable and pinned memory, at either end.
void overlapping_slices() {
  constexpr size_t kBytes = 8u << 20;
  std::vector<unsigned char> pageable(kBytes);
  void* pinned = nullptr;
  CUdeviceptr device = 0;
  NEED(cuMemAlloc(&device, kBytes));
  NEED(cuMemHostAlloc(&pinned, kBytes, 0));
  for (const size_t width : {20, 2000}) {
    for (void* const host : {static_cast<void*>(pageable.data()), pinned}) {
      CUDA_MEMCPY3D up{};
      up.srcMemoryType = CU_MEMORYTYPE_HOST;
      up.srcHost = host;
      up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      up.dstDevice = device;
      up.srcPitch = up.dstPitch = width;
      up.WidthInBytes = width;
      up.Height = up.srcHeight = 50;
      up.dstHeight = 20;
      up.Depth = 4;
      CUDA_MEMCPY3D down = up;
      down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
      down.srcDevice = device;
      down.dstMemoryType = CU_MEMORYTYPE_HOST;
      down.dstHost = host;
      for (CUDA_MEMCPY3D& copy : {std::ref(up), std::ref(down)}) {
        SHOW(cuMemcpy3D(&copy));
        SHOW(cuMemcpy3DAsync(&copy, nullptr));
        std::swap(copy.srcHeight, copy.dstHeight);
        SHOW(cuMemcpy3D(&copy));
        SHOW(cuMemcpy3DAsync(&copy, nullptr));
      }
      SHOW(cuCtxSynchronize());
    }
  }
  SHOW(cuMemFreeHost(pinned));
  SHOW(cuMemFree(device));
}

using Op = CUDA_MEMCPY3D_BATCH_OP;

Op box(CUdeviceptr to, CUdeviceptr from, CUextent3D extent) {
  Op op{};
  op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr.ptr = from;
  op.dst.op.ptr.ptr = to;
  op.extent = extent;
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return op;
}

// Every direction in one batch after another, gaps between rows and slices, and what is refused.
void batches_of_boxes() {
  constexpr size_t kWidth = 50, kHeight = 6, kDepth = 5, kPitch = 64, kRows = 9;
  constexpr size_t kSpread = kPitch * kRows * kDepth, kTight = kWidth * kHeight * kDepth;
  constexpr CUextent3D kAll{kWidth, kHeight, kDepth};
  std::vector<unsigned char> in(kTight), out(kSpread, 1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 11 + 5);
  const auto source = reinterpret_cast<CUdeviceptr>(in.data());
  const auto target = reinterpret_cast<CUdeviceptr>(out.data());
  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr a, b;
  NEED(cuMemAlloc(&a, kSpread));
  NEED(cuMemAlloc(&b, kSpread));
  NEED(cuMemsetD8(a, 2, kSpread));
  NEED(cuMemsetD8(b, 3, kSpread));
  NEED(cuCtxSynchronize());  // a fill may come later, and the stream does not wait for it

  // Two boxes of a batch go into different places: one packed, one with gaps.
  Op up[2] = {box(a, source, kAll), box(b, source, kAll)};
  up[1].dst.op.ptr.rowLength = kPitch;
  up[1].dst.op.ptr.layerHeight = kRows;
  up[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  SHOW(cuMemcpy3DBatchAsync(2, up, 0, stream));
  std::fill(in.begin(), in.end(), 0);  // pageable memory was taken when the call returned
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuMemcpyDtoH(out.data(), a, kSpread));
  std::printf("  packed %08x\n", checksum(out));
  SHOW(cuMemcpyDtoH(out.data(), b, kSpread));
  std::printf("  with gaps %08x\n", checksum(out));

  // A part of the box, inside the device.
  Op across = box(a, b + kPitch + 3, {20, 4, 2});
  across.src.op.ptr.rowLength = kPitch;
  across.src.op.ptr.layerHeight = kRows;
  across.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  across.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  SHOW(cuMemcpy3DBatchAsync(1, &across, 0, stream));
  std::fill(out.begin(), out.end(), 1);
  Op down = box(target, a, {20, 4, 2});
  down.dst.op.ptr.rowLength = 30;
  SHOW(cuMemcpy3DBatchAsync(1, &down, 0, stream));
  SHOW(cuStreamSynchronize(stream));
  std::printf("  part %08x\n", checksum(out));

  SHOW(cuMemcpy3DBatchAsync(0, up, 0, stream));
  SHOW(cuMemcpy3DBatchAsync(2, nullptr, 0, stream));
  SHOW(cuMemcpy3DBatchAsync(2, up, 1, stream));
  SHOW(cuMemcpy3DBatchAsync(2, up, 0, nullptr));
  const auto wrong = [&](const char* what, auto&& change) {
    Op op[2] = {box(b, a, kAll), box(b, a, kAll)};
    change(op[1]);
    NEED(cuMemsetD8(b, 4, kSpread));
    NEED(cuCtxSynchronize());
    show(what, cuMemcpy3DBatchAsync(2, op, 0, stream));
    SHOW(cuStreamSynchronize(stream));
    unsigned char first = 0;
    SHOW(cuMemcpyDtoH(&first, b, 1));
    VALUE(first == 4);  // nothing of the batch was copied
  };
  wrong("a short row", [](Op& op) { op.src.op.ptr.rowLength = kWidth - 1; });
  wrong("a low layer", [](Op& op) { op.dst.op.ptr.layerHeight = kHeight - 1; });
  wrong("no depth", [](Op& op) { op.extent.depth = 0; });
  wrong("no order", [](Op& op) { op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID; });
  wrong("no operand", [](Op& op) { op.src.type = static_cast<CUmemcpy3DOperandType>(0); });
  wrong("unknown flags", [](Op& op) { op.flags = 2; });

  // The form of CUDA 12.8 says which copy was refused.
  using Old = CUresult (*)(size_t, Op*, size_t*, unsigned long long, CUstream);
  void* old = nullptr;
  SHOW(cuGetProcAddress("cuMemcpy3DBatchAsync", &old, 12080, 0, nullptr));
  Op op[2] = {box(b, a, kAll), box(b, a, kAll)};
  size_t failed = 99;
  SHOW(reinterpret_cast<Old>(old)(2, op, &failed, 0, stream));
  op[1].extent.width = 0;
  SHOW(reinterpret_cast<Old>(old)(2, op, &failed, 0, stream));
  VALUE(failed);
  SHOW(reinterpret_cast<Old>(old)(2, op, nullptr, 0, stream));
  SHOW(cuStreamDestroy(stream));
  SHOW(cuMemFree(a));
  SHOW(cuMemFree(b));
}

// Addresses are unified: what is called host memory may be the device's.
void device_memory_called_host_memory() {
  constexpr size_t kBytes = 8192;
  std::vector<unsigned char> in(kBytes), out(kBytes);
  for (size_t i = 0; i < kBytes; ++i) in[i] = static_cast<unsigned char>(i * 13 + (i >> 8));
  CUdeviceptr a, b;
  CUstream stream;
  NEED(cuMemAlloc(&a, kBytes));
  NEED(cuMemAlloc(&b, kBytes));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuMemcpyHtoD(a, in.data(), kBytes));
  void *const at_a = reinterpret_cast<void*>(a), *const at_b = reinterpret_cast<void*>(b);
  const auto show_b = [&](const char* text) {
    NEED(cuCtxSynchronize());
    NEED(cuMemcpyDtoH(out.data(), b, kBytes));
    std::printf("  %s %08x\n", text, checksum(out));
    NEED(cuMemsetD8(b, 0, kBytes));
    NEED(cuCtxSynchronize());
  };
  NEED(cuMemsetD8(b, 0, kBytes));
  SHOW(cuMemcpyHtoD(b, at_a, kBytes - 8));
  show_b("to the device");
  SHOW(cuMemcpyHtoDAsync(b + 16, static_cast<char*>(at_a) + 1, kBytes - 16, stream));
  show_b("to the device, in a stream");
  SHOW(cuMemcpyDtoH(at_b, a, kBytes - 24));
  show_b("to the host");
  SHOW(cuMemcpyDtoHAsync(static_cast<char*>(at_b) + 8, a, kBytes - 8, stream));
  show_b("to the host, in a stream");
  const CUDA_MEMCPY2D up = host_to_device(at_a, 128, b, 64, 48, 60);
  SHOW(cuMemcpy2D(&up));
  show_b("rows to the device");
  const CUDA_MEMCPY2D down = device_to_host(a, 64, at_b, 128, 48, 60);
  SHOW(cuMemcpy2DAsync(&down, stream));
  show_b("rows to the host");
  SHOW(cuMemcpyHtoD(b, at_a, kBytes + 1));
  SHOW(cuMemcpyDtoH(at_b, a, kBytes + 1));

  CUgraph graph;
  CUgraphExec exec;
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemcpyHtoDAsync(b, at_a, 1000, stream));
  SHOW(cuMemcpyDtoHAsync(static_cast<char*>(at_b) + 4000, a + 8, 1000, stream));
  NEED(cuStreamEndCapture(stream, &graph));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, stream));
  show_b("in a graph");
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));

  CUDA_ARRAY_DESCRIPTOR shape{kBytes / 4, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
  CUarray array;
  NEED(cuArrayCreate(&array, &shape));
  SHOW(cuMemcpyHtoA(array, 0, at_a, kBytes));
  SHOW(cuMemcpyAtoH(at_b, array, 16, kBytes - 16));
  show_b("by way of an array");
  NEED(cuArrayDestroy(array));
  NEED(cuStreamDestroy(stream));
  NEED(cuMemFree(a));
  NEED(cuMemFree(b));
}

}  // namespace

int main() {
  make_context();
  one_dimension();
  two_dimensions();
  three_dimensions();
  overlapping_slices();
  batches_of_boxes();
  device_memory_called_host_memory();
  SHOW(cuCtxSynchronize());
  return 0;
}
