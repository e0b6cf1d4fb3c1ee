// A synchronous copy from pinned or registered memory has arrived when its call returns: work that
// is submitted then to any stream, by any thread, in any context and device sees the bytes,
// although the copy stood behind a kernel that was still running. Every shape, small and large.
#include <functional>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kBusy = 150'000;  // microseconds
constexpr size_t kRows = 8, kSlices = 2;

CUfunction spin, load;
CUdeviceptr seen;

// Rows as long as pitches on both sides allow; `bytes` in all.
struct Shape {
  const char* name;
  size_t bytes;
  std::function<CUresult(CUdeviceptr to, int* from, size_t bytes)> copy;
};

CUDA_MEMCPY2D box_2d(CUdeviceptr to, int* from, size_t bytes) {
  CUDA_MEMCPY2D box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = from;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = to;
  box.srcPitch = box.dstPitch = bytes / kRows;
  box.WidthInBytes = bytes / kRows - sizeof(int);  // the last row ends one word earlier
  box.Height = kRows;
  return box;
}

template <typename Box>
Box box_3d(CUdeviceptr to, int* from, size_t bytes) {
  Box box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = from;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = to;
  box.srcPitch = box.dstPitch = bytes / kRows / kSlices;
  box.srcHeight = box.dstHeight = kRows;
  box.WidthInBytes = bytes / kRows / kSlices - sizeof(int);
  box.Height = kRows;
  box.Depth = kSlices;
  return box;
}

constexpr size_t kSmall = 4096, kLarge = 4u << 20;

std::vector<Shape> shapes(CUcontext context) {
  std::vector<Shape> all;
  for (const size_t bytes : {kSmall, kLarge}) {
    all.push_back({"cuMemcpyHtoD", bytes,
                   [](CUdeviceptr to, int* from, size_t n) { return cuMemcpyHtoD(to, from, n); }});
    all.push_back({"cuMemcpy", bytes, [](CUdeviceptr to, int* from, size_t n) {
                     return cuMemcpy(to, reinterpret_cast<CUdeviceptr>(from), n);
                   }});
    all.push_back({"cuMemcpy2D", bytes, [](CUdeviceptr to, int* from, size_t n) {
                     const CUDA_MEMCPY2D box = box_2d(to, from, n);
                     return cuMemcpy2D(&box);
                   }});
    all.push_back({"cuMemcpy2DUnaligned", bytes, [](CUdeviceptr to, int* from, size_t n) {
                     const CUDA_MEMCPY2D box = box_2d(to, from, n);
                     return cuMemcpy2DUnaligned(&box);
                   }});
    all.push_back({"cuMemcpy2D, unified", bytes, [](CUdeviceptr to, int* from, size_t n) {
                     CUDA_MEMCPY2D box = box_2d(to, from, n);
                     box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
                     box.srcDevice = reinterpret_cast<CUdeviceptr>(from);
                     return cuMemcpy2D(&box);
                   }});
    all.push_back({"cuMemcpy3D", bytes, [](CUdeviceptr to, int* from, size_t n) {
                     const auto box = box_3d<CUDA_MEMCPY3D>(to, from, n);
                     return cuMemcpy3D(&box);
                   }});
    all.push_back({"cuMemcpy3DPeer", bytes, [context](CUdeviceptr to, int* from, size_t n) {
                     auto box = box_3d<CUDA_MEMCPY3D_PEER>(to, from, n);
                     box.srcContext = box.dstContext = context;
                     return cuMemcpy3DPeer(&box);
                   }});
  }
  return all;
}

// The word that a copy of `bytes` brings last.
size_t last_word(const Shape& shape) {
  const size_t words = shape.bytes / sizeof(int);
  const bool is_line =
      std::strchr(shape.name, 'D') == nullptr || std::strcmp(shape.name, "cuMemcpyHtoD") == 0;
  return is_line ? words - 1 : words - 2;
}

// Copies while the legacy stream is busy, then lets `read` bring what the device has to `seen`.
void check(const char* memory, const Shape& shape, int* host, CUdeviceptr target,
           const char* reader, const std::function<void(CUdeviceptr word)>& read) {
  static int value = 1000;
  CU(cuMemsetD8(target, 0, shape.bytes));
  CU(cuMemsetD32(seen, 0, 1));
  CU(cuCtxSynchronize());
  const size_t word = last_word(shape);
  host[word] = ++value;
  step(shape.name);
  CU(launch(spin, nullptr, kBusy));
  CU(shape.copy(target, host, shape.bytes));
  read(target + word * sizeof(int));
  int result = 0;
  CU(cuCtxSynchronize());
  CU(cuMemcpyDtoH(&result, seen, sizeof result));
  if (result != value)
    wrong("%s of %zu bytes from %s memory: %s read %d, not %d", shape.name, shape.bytes, memory,
          reader, result, value);
}

// A batch has a stream and no synchronous form; it has arrived when its stream is synchronised.
void check_batch(int* host, CUdeviceptr target) {
  const CUstream stream = make_stream(), other = make_stream();
  host[0] = 7, host[1024] = 8;
  CUdeviceptr to[] = {target, target + 4096};
  CUdeviceptr from[] = {reinterpret_cast<CUdeviceptr>(host),
                        reinterpret_cast<CUdeviceptr>(host + 1024)};
  size_t bytes[] = {4096, 4096}, starts[] = {0};
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  const CUresult result = cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, starts, 1, stream);
  if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_FOUND) return;
  CU(result);
  CU(cuStreamSynchronize(stream));
  CU(launch(load, other, seen, target + 4096));
  CU(cuStreamSynchronize(other));
  int value = 0;
  CU(cuMemcpyDtoH(&value, seen, sizeof value));
  HOLDS(value == 8);
}

}  // namespace

int main() {
  begin(120);
  const int devices = device_count();
  const CUcontext context = use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin"), load = kernel_of(module, "load");
  seen = device_memory(64);
  CU(launch(load, nullptr, seen, device_memory(64)));  // loaded before the device is busy
  const CUdeviceptr target = device_memory(kLarge);
  int* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kLarge, 0));
  int* const registered = static_cast<int*>(aligned_alloc(4096, kLarge));
  std::memset(registered, 0, kLarge);
  CU(cuMemHostRegister(registered, kLarge, 0));
  const std::pair<const char*, int*> memories[] = {{"pinned", pinned}, {"registered", registered}};

  const CUstream stream = make_stream();
  const auto kernel_in_a_stream = [&](CUdeviceptr word) { CU(launch(load, stream, seen, word)); };
  for (const auto& [memory, host] : memories) {
    for (const Shape& shape : shapes(context))
      check(memory, shape, host, target, "a kernel in another stream", kernel_in_a_stream);
  }

  // Who reads: with one shape, from both kinds of memory, small and large.
  const CUstream other_stream = make_stream();
  const CUcontext other_context = new_context(devices > 1 ? 1 : 0);
  const CUstream there = make_stream();
  CUdeviceptr copied = device_memory(64);
  CU(cuCtxSetCurrent(context));
  const std::pair<const char*, std::function<void(CUdeviceptr)>> readers[] = {
      {"a kernel that another thread launched",
       [&](CUdeviceptr word) {
         std::thread([&] {
           CU(cuCtxSetCurrent(context));
           CU(launch(load, other_stream, seen, word));
         }).join();
       }},
      {"a copy inside the device",
       [&](CUdeviceptr word) { CU(cuMemcpyDtoDAsync(seen, word, sizeof(int), stream)); }},
      {"a copy to the host",
       [&](CUdeviceptr word) {
         int value = 0;
         CU(cuMemcpyDtoHAsync(&value, word, sizeof value, stream));
         CU(cuStreamSynchronize(stream));
         CU(cuMemcpyHtoD(seen, &value, sizeof value));
       }},
      {"a kernel behind an event of an idle stream",
       [&](CUdeviceptr word) {
         const CUevent event = make_event();
         CU(cuEventRecord(event, other_stream));
         CU(cuStreamWaitEvent(stream, event, 0));
         CU(launch(load, stream, seen, word));
         CU(cuEventDestroy(event));
       }},
      {devices > 1 ? "a copy of another device" : "a copy in another context",
       [&](CUdeviceptr word) {
         CU(cuCtxSetCurrent(other_context));
         CU(cuMemcpyPeerAsync(copied, other_context, word, context, sizeof(int), there));
         CU(cuStreamSynchronize(there));
         int value = 0;
         CU(cuMemcpyDtoH(&value, copied, sizeof value));
         CU(cuCtxSetCurrent(context));
         CU(cuMemcpyHtoD(seen, &value, sizeof value));
       }},
  };
  const auto all = shapes(context);
  for (const auto& [memory, host] : memories) {
    for (const auto& [reader, read] : readers) {
      for (const Shape& shape : all) {
        if (std::strcmp(shape.name, "cuMemcpyHtoD") == 0)
          check(memory, shape, host, target, reader, read);
      }
    }
    step("a batch");
    check_batch(host, target);
  }

  // Of pageable memory less is promised: for large copies the last piece may still be under way.
  std::vector<int> pageable(kSmall / sizeof(int));
  CU(cuMemsetD8(target, 0, kSmall));
  CU(cuCtxSynchronize());
  pageable.back() = 5;
  CU(launch(spin, nullptr, kBusy));
  CU(cuMemcpyHtoD(target, pageable.data(), kSmall));
  CU(launch(load, stream, seen, target + kSmall - sizeof(int)));
  CU(cuCtxSynchronize());
  int value = 0;
  CU(cuMemcpyDtoH(&value, seen, sizeof value));
  note("from pageable memory, behind a busy stream: %s bytes", value == 5 ? "the new" : "the old");
  right();
}
