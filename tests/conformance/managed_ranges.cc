// What is said of managed memory: attachments to streams, advice, prefetches; and who may use it
// when.
#include <thread>

#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

constexpr size_t kPage = 4096;

unsigned* words(CUdeviceptr p) { return reinterpret_cast<unsigned*>(p); }

CUdeviceptr managed(size_t bytes, unsigned flags = CU_MEM_ATTACH_GLOBAL) {
  CUdeviceptr p = 0;
  NEED(cuMemAllocManaged(&p, bytes, flags));
  return p;
}

CUmemLocation at(CUmemLocationType type, int id = 0) {
  CUmemLocation location{};
  location.type = type;
  location.id = id;
  return location;
}

void attach(CUstream stream) {
  const CUdeviceptr p = managed(2 * kPage);
  CUdeviceptr plain = 0;
  NEED(cuMemAlloc(&plain, kPage));
  SHOW(cuStreamAttachMemAsync(stream, p, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(stream, p, 2 * kPage, CU_MEM_ATTACH_HOST));
  SHOW(cuStreamAttachMemAsync(stream, p, kPage, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(stream, p + kPage, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(stream, p, 2 * kPage + 1, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(nullptr, p, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(CU_STREAM_LEGACY, p, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(CU_STREAM_PER_THREAD, p, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(nullptr, p, 0, CU_MEM_ATTACH_HOST));
  SHOW(cuStreamAttachMemAsync(nullptr, p, 0, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuStreamAttachMemAsync(stream, p, 0, 3));
  SHOW(cuStreamAttachMemAsync(stream, plain, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(stream, 0, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuMemFree(plain));
  SHOW(cuMemFree(p));
}

void show_range(const char* what, CUdeviceptr p, size_t bytes) {
  std::printf("%s:\n", what);
  for (int attribute = 1; attribute <= 8; ++attribute) {
    int values[3] = {77, 77, 77};
    const size_t size = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY ? 12 : 4;
    const CUresult result = cuMemRangeGetAttribute(
        values, size, static_cast<CUmem_range_attribute>(attribute), p, bytes);
    std::printf("  %d: %s %d %d %d\n", attribute, error_name(result), values[0], values[1],
                values[2]);
  }
}

void advise() {
  const CUdeviceptr p = managed(4 * kPage);
  CUdeviceptr plain = 0;
  NEED(cuMemAlloc(&plain, kPage));
  const CUmemLocation gpu = at(CU_MEM_LOCATION_TYPE_DEVICE), host = at(CU_MEM_LOCATION_TYPE_HOST);
  show_range("fresh", p, 4 * kPage);
  for (int advice = 0; advice <= 7; ++advice) {
    for (int type = 0; type <= 5; ++type) {
      const CUresult result = cuMemAdvise(p, kPage, static_cast<CUmem_advise>(advice),
                                          at(static_cast<CUmemLocationType>(type)));
      std::printf("advice %d, place %d: %s\n", advice, type, error_name(result));
    }
  }
  show_range("all of them", p, kPage);
  SHOW(cuMemAdvise(p, 2 * kPage, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
  SHOW(cuMemAdvise(p, 4 * kPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, gpu));
  SHOW(cuMemAdvise(p, 4 * kPage, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
  SHOW(cuMemAdvise(p + kPage, 1, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu));
  show_range("first page", p, kPage);
  show_range("second page", p + kPage, kPage);
  show_range("whole", p, 4 * kPage);
  SHOW(cuMemAdvise(p, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
  SHOW(cuMemAdvise(p, 4 * kPage + 1, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
  SHOW(cuMemAdvise(plain, kPage, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
  SHOW(cuMemAdvise(0, kPage, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
  SHOW(cuMemAdvise(p, kPage, CU_MEM_ADVISE_SET_ACCESSED_BY, at(CU_MEM_LOCATION_TYPE_DEVICE, 9)));
  int value = 0;
  SHOW(cuMemRangeGetAttribute(nullptr, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, kPage));
  SHOW(cuMemRangeGetAttribute(&value, 2, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, kPage));
  SHOW(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, 0));
  SHOW(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, kPage));
  SHOW(cuMemRangeGetAttribute(&value, 4, static_cast<CUmem_range_attribute>(99), p, kPage));
  int preferred = 0;
  void* data[] = {&value, &preferred};
  size_t sizes[] = {4, 4};
  CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
  SHOW(cuMemRangeGetAttributes(data, sizes, attributes, 2, p, 2 * kPage));
  VALUE(value);
  VALUE(preferred);
  SHOW(cuMemRangeGetAttributes(data, sizes, attributes, 0, p, kPage));
  // The answer in the memory that it is about.
  SHOW(cuMemRangeGetAttribute(words(p), 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, kPage));
  VALUE(words(p)[0]);
  SHOW(cuMemFree(plain));
  SHOW(cuMemFree(p));
}

void prefetch(CUstream stream) {
  const CUdeviceptr p = managed(4 * kPage), q = managed(100);
  const CUmemLocation gpu = at(CU_MEM_LOCATION_TYPE_DEVICE), host = at(CU_MEM_LOCATION_TYPE_HOST);
  words(p)[0] = 5;
  for (int type = 0; type <= 5; ++type) {
    const CUresult result =
        cuMemPrefetchAsync(p, 4 * kPage, at(static_cast<CUmemLocationType>(type)), 0, stream);
    std::printf("prefetch to place %d: %s\n", type, error_name(result));
    NEED(cuStreamSynchronize(stream));
    show_range("prefetched", p, 4 * kPage);
  }
  VALUE(words(p)[0]);
  SHOW(cuMemPrefetchAsync(p, kPage, gpu, 1, stream));
  SHOW(cuMemPrefetchAsync(p, 0, gpu, 0, stream));
  SHOW(cuMemPrefetchAsync(p, 4 * kPage + 1, gpu, 0, stream));
  SHOW(cuMemPrefetchAsync(p, kPage, at(CU_MEM_LOCATION_TYPE_DEVICE, 9), 0, stream));
  SHOW(cuMemPrefetchAsync(p, kPage, gpu, 0, nullptr));
  CUdeviceptr both[] = {p, q};
  size_t sizes[] = {kPage, 100}, firsts[] = {0, 1}, late[] = {1};
  CUmemLocation places[] = {gpu, host};
  SHOW(cuMemPrefetchBatchAsync(both, sizes, 2, places, firsts, 2, 0, stream));
  show_range("q", q, 100);
  SHOW(cuMemPrefetchBatchAsync(both, sizes, 2, places, firsts, 2, 0, nullptr));
  SHOW(cuMemPrefetchBatchAsync(both, sizes, 2, places, firsts, 2, 1, stream));
  SHOW(cuMemPrefetchBatchAsync(both, sizes, 2, places, late, 1, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(both, sizes, 0, places, firsts, 1, 0, stream));
  SHOW(cuMemDiscardBatchAsync(both, sizes, 2, 0, stream));
  SHOW(cuMemDiscardBatchAsync(both, sizes, 2, 1, stream));
  SHOW(cuMemDiscardAndPrefetchBatchAsync(both, sizes, 2, places, firsts, 2, 0, stream));
  SHOW(cuStreamSynchronize(stream));
  NEED(cuMemFree(p));
  NEED(cuMemFree(q));
}

// Each thread works alone with a stream and the memory that is attached to it: some rounds on the
// host, some on the device.
void threads_with_streams(CUfunction add) {
  constexpr unsigned kThreads = 4, kWords = 30'000;
  CUcontext context;
  NEED(cuCtxGetCurrent(&context));
  std::vector<uint32_t> sums(kThreads);
  std::vector<std::thread> all;
  for (unsigned t = 0; t < kThreads; ++t) {
    all.emplace_back([&, t] {
      NEED(cuCtxSetCurrent(context));
      CUstream stream;
      NEED(cuStreamCreate(&stream, t % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
      CUdeviceptr p = managed(kWords * 4, CU_MEM_ATTACH_HOST);
      NEED(cuStreamAttachMemAsync(stream, p, 0, CU_MEM_ATTACH_SINGLE));
      NEED(cuStreamSynchronize(stream));
      for (unsigned i = 0; i < kWords; ++i) words(p)[i] = i * (t + 1);
      for (unsigned round = 0; round < 12; ++round) {
        if ((round + t) % 3 == 0) {
          for (unsigned i = 0; i < kWords; ++i) words(p)[i] += round;
          continue;
        }
        unsigned n = kWords;
        void* parameters[] = {&p, &p, &p, &n};
        NEED(cuLaunchKernel(add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr));
        NEED(cuStreamSynchronize(stream));
      }
      sums[t] = checksum(words(p), kWords * 4);
      NEED(cuMemFree(p));
      NEED(cuStreamDestroy(stream));
    });
  }
  for (std::thread& each : all) each.join();
  for (const uint32_t sum : sums) VALUE(sum);
}

// Memory of one device in a kernel of the other one.
void two_devices() {
  int count = 0;
  NEED(cuDeviceGetCount(&count));
  if (count < 2) return;
  CUcontext contexts[2];
  CUfunction adds[2];
  for (int device = 0; device < 2; ++device) {
    NEED(cuDevicePrimaryCtxRetain(&contexts[device], device));
    NEED(cuCtxSetCurrent(contexts[device]));
    CUmodule module;
    NEED(cuModuleLoadData(&module, kKernels));
    NEED(cuModuleGetFunction(&adds[device], module, "add"));
  }
  NEED(cuCtxSetCurrent(contexts[0]));
  unsigned n = 10'000;
  CUdeviceptr p = managed(n * 4);
  for (unsigned i = 0; i < n; ++i) words(p)[i] = i;
  for (int round = 0; round < 6; ++round) {
    NEED(cuCtxSetCurrent(contexts[round % 2]));
    void* parameters[] = {&p, &p, &p, &n};
    NEED(cuLaunchKernel(adds[round % 2], (n + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters,
                        nullptr));
    NEED(cuCtxSynchronize());
    words(p)[round]++;
  }
  VALUE(checksum(words(p), n * 4));
  NEED(cuMemFree(p));
}

}  // namespace

int main() {
  make_context();
  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  attach(stream);
  advise();
  prefetch(stream);
  CUmodule module;
  CUfunction add;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&add, module, "add"));
  threads_with_streams(add);
  two_devices();
  return 0;
}
