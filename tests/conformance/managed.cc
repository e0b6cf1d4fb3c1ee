// Managed memory: one pointer for host and device, coherent at launches and synchronisations.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <thread>

#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

// sum(list, out): follows a list of {next, value} and writes the sum of the values.
const char* const kList = R"ptx(
.version 7.5
.target sm_75
.address_size 64
.visible .entry sum(.param .u64 list, .param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [list];
  ld.param.u64 %rd2, [out];
  mov.u64 %rd3, 0;
next:
  setp.eq.u64 %p1, %rd1, 0;
  @%p1 bra done;
  ld.global.u64 %rd4, [%rd1+8];
  add.u64 %rd3, %rd3, %rd4;
  ld.global.u64 %rd1, [%rd1];
  bra next;
done:
  st.global.u64 [%rd2], %rd3;
  ret;
}
)ptx";

struct Kernels {
  CUfunction add, fill, sum;
};

Kernels load() {
  CUmodule module, list;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleLoadData(&list, kList));
  Kernels kernels;
  NEED(cuModuleGetFunction(&kernels.add, module, "add"));
  NEED(cuModuleGetFunction(&kernels.fill, module, "fill"));
  NEED(cuModuleGetFunction(&kernels.sum, list, "sum"));
  return kernels;
}

unsigned* words(CUdeviceptr p) { return reinterpret_cast<unsigned*>(p); }

CUdeviceptr managed(size_t bytes, unsigned flags = CU_MEM_ATTACH_GLOBAL) {
  CUdeviceptr p = 0;
  NEED(cuMemAllocManaged(&p, bytes, flags));
  return p;
}

CUresult fill(const Kernels& kernels, CUdeviceptr p, unsigned value, unsigned n,
              CUstream stream = nullptr) {
  void* parameters[] = {&p, &value, &n};
  return cuLaunchKernel(kernels.fill, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, parameters,
                        nullptr);
}

// c = a + b
CUresult add(const Kernels& kernels, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, unsigned n,
             CUstream stream = nullptr) {
  void* parameters[] = {&a, &b, &c, &n};
  return cuLaunchKernel(kernels.add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, parameters,
                        nullptr);
}

void wrong_arguments() {
  CUdeviceptr p = 0;
  SHOW(cuMemAllocManaged(nullptr, 16, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuMemAllocManaged(&p, 16, 0));
  SHOW(cuMemAllocManaged(&p, 16, CU_MEM_ATTACH_SINGLE));
  SHOW(cuMemAllocManaged(&p, 16, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST));
  SHOW(cuMemAllocManaged(&p, size_t{1} << 50, CU_MEM_ATTACH_GLOBAL));
  p = managed(5000);
  SHOW(cuMemFree(p + 8));
  SHOW(cuMemFreeAsync(p, nullptr));
  SHOW(cuMemFreeHost(reinterpret_cast<void*>(p)));
  SHOW(cuMemcpyDtoD(p, p + 4000, 1001));
  SHOW(cuMemsetD8(p, 0, 5001));
  SHOW(cuMemFree(p));
  SHOW(cuMemFree(p));
}

void attributes() {
  const CUdeviceptr p = managed(5000, CU_MEM_ATTACH_HOST);
  for (const CUdeviceptr at : {p, p + 100}) {
    unsigned type = 9, is_managed = 9;
    void* host = nullptr;
    CUdeviceptr device = 0, base = 0;
    size_t bytes = 0;
    SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    VALUE(type);
    SHOW(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
    VALUE(is_managed);
    // The same alone and in a list; so only for managed memory.
    unsigned alone = 9, listed = 9;
    CUpointer_attribute sync_memops = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    void* places[] = {&listed};
    SHOW(cuPointerGetAttribute(&alone, sync_memops, at));
    SHOW(cuPointerGetAttributes(1, &sync_memops, places, at));
    VALUE(alone);
    VALUE(listed);
    SHOW(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
    VALUE(host == reinterpret_cast<void*>(at));
    SHOW(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
    VALUE(device == at);
    SHOW(cuMemGetAddressRange(&base, &bytes, at));
    VALUE(base == p);
    VALUE(bytes);
    SHOW(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
    VALUE(base == p);
    SHOW(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
    VALUE(bytes);
  }
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const CUdeviceptr plain = [] {
    CUdeviceptr other = 0;
    NEED(cuMemAlloc(&other, 256));
    return other;
  }();
  SHOW(cuMemGetAddressRange(&base, &bytes, plain));
  VALUE(bytes);
  SHOW(cuMemFree(plain));
  SHOW(cuMemFree(p));
  unsigned is_managed = 9;
  SHOW(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
}

// The host writes, a kernel changes it, the host reads, again and again.
void in_a_loop(const Kernels& kernels) {
  constexpr unsigned kWords = 100'000;
  const CUdeviceptr a = managed(kWords * 4), b = managed(kWords * 4);
  VALUE(std::accumulate(words(a), words(a) + kWords, 0u));
  unsigned wrong = 0;
  for (unsigned round = 0; round < 20; ++round) {
    for (unsigned i = round; i < kWords; i += 1 + 37 * round) words(a)[i] = i + round;
    NEED(add(kernels, a, b, b, kWords));
    NEED(add(kernels, a, b, b, kWords));
    NEED(round % 2 == 0 ? cuCtxSynchronize() : cuStreamSynchronize(nullptr));
    for (unsigned i = 0; i < kWords; i += 501) wrong += words(b)[i] < words(a)[i];
    words(b)[round * 3000] += 7;
  }
  VALUE(wrong);
  VALUE(checksum(words(a), kWords * 4));
  VALUE(checksum(words(b), kWords * 4));
  NEED(cuMemFree(a));
  NEED(cuMemFree(b));
}

void many_allocations(const Kernels& kernels) {
  std::vector<CUdeviceptr> all;
  for (unsigned i = 0; i < 300; ++i) {
    all.push_back(managed(4 + i * 4 * 37, i % 2 == 0 ? CU_MEM_ATTACH_GLOBAL : CU_MEM_ATTACH_HOST));
    words(all.back())[i * 37] = i;
  }
  for (unsigned i = 0; i < 300; i += 2) NEED(add(kernels, all[i], all[i], all[i], 1 + i * 37));
  NEED(cuCtxSynchronize());
  unsigned wrong = 0, others = 0;
  for (unsigned i = 0; i < 300; ++i) {
    wrong += words(all[i])[i * 37] != (i % 2 == 0 ? 2 * i : i);
    others += i > 0 ? words(all[i])[i * 37 - 1] : 0;
  }
  VALUE(wrong);
  VALUE(others);
  for (const CUdeviceptr each : all) NEED(cuMemFree(each));
  // Memory that is used again has nothing of before in it.
  const CUdeviceptr fresh = managed(1 << 20);
  VALUE(std::accumulate(words(fresh), words(fresh) + (1 << 18), 0u));
  NEED(cuMemFree(fresh));
}

void large(const Kernels& kernels) {
  constexpr unsigned kWords = 10u << 20;
  const CUdeviceptr p = managed(size_t{kWords} * 4);
  for (unsigned i = 0; i < kWords; ++i) words(p)[i] = i;
  NEED(add(kernels, p, p, p, kWords));
  NEED(cuCtxSynchronize());
  VALUE(checksum(words(p), size_t{kWords} * 4));
  // Backwards, and single words.
  NEED(add(kernels, p, p, p, kWords));
  NEED(cuCtxSynchronize());
  uint64_t sum = 0;
  for (unsigned i = kWords; i-- > 0;) sum += words(p)[i];
  VALUE(sum);
  for (unsigned i = 5; i < kWords; i += 100'003) words(p)[i] = i;
  NEED(add(kernels, p, p, p, kWords));
  NEED(cuCtxSynchronize());
  VALUE(checksum(words(p), size_t{kWords} * 4));
  NEED(cuMemFree(p));
}

struct Node {
  Node* next;
  uint64_t value;
};

void pointers_inside(const Kernels& kernels) {
  std::vector<Node*> nodes;
  Node* first = nullptr;
  for (uint64_t i = 0; i < 50; ++i) {
    nodes.push_back(reinterpret_cast<Node*>(managed(sizeof(Node))));
    *nodes.back() = {first, i * i};
    first = nodes.back();
  }
  auto* const out = reinterpret_cast<uint64_t*>(managed(sizeof(uint64_t)));
  // The parameters themselves lie in managed memory.
  auto** const parameters = reinterpret_cast<void**>(managed(4 * sizeof(void*)));
  parameters[0] = &parameters[2];
  parameters[1] = &parameters[3];
  parameters[2] = first;
  parameters[3] = out;
  SHOW(cuLaunchKernel(kernels.sum, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  SHOW(cuCtxSynchronize());
  VALUE(*out);
  for (Node* const each : nodes) NEED(cuMemFree(reinterpret_cast<CUdeviceptr>(each)));
  NEED(cuMemFree(reinterpret_cast<CUdeviceptr>(out)));
  NEED(cuMemFree(reinterpret_cast<CUdeviceptr>(parameters)));
}

// Between managed memory and device memory a synchronous copy need not wait for its bytes.
void copies() {
  constexpr size_t kBytes = 300'000;
  const CUdeviceptr m = managed(kBytes), n = managed(kBytes);
  CUdeviceptr d = 0;
  NEED(cuMemAlloc(&d, kBytes));
  std::vector<unsigned char> host(kBytes), back(kBytes);
  for (size_t i = 0; i < kBytes; ++i) host[i] = static_cast<unsigned char>(i * 7 + i / 256);
  auto* const at_m = reinterpret_cast<unsigned char*>(m);
  auto* const at_n = reinterpret_cast<unsigned char*>(n);

  SHOW(cuMemcpyHtoD(m, host.data(), kBytes));
  VALUE(checksum(at_m, kBytes));
  at_m[100] = 1;
  SHOW(cuMemcpyDtoH(back.data(), m, kBytes));
  VALUE(checksum(back));
  at_m[200] = 2;
  SHOW(cuMemcpyHtoD(d, at_m, kBytes));  // managed as host memory
  NEED(cuCtxSynchronize());
  at_m[200] = 3;
  SHOW(cuMemcpyDtoH(at_n, d, kBytes));
  NEED(cuCtxSynchronize());
  VALUE(at_n[200]);
  VALUE(checksum(at_n, kBytes));
  at_n[300] = 4;
  SHOW(cuMemcpy(m, n, kBytes));
  NEED(cuCtxSynchronize());
  VALUE(at_m[300]);
  VALUE(checksum(at_m, kBytes));
  SHOW(cuMemcpy(reinterpret_cast<CUdeviceptr>(back.data()), m, kBytes));
  VALUE(checksum(back));
  back[5] = 6;
  SHOW(cuMemcpy(n, reinterpret_cast<CUdeviceptr>(back.data()), kBytes));
  VALUE(at_n[5]);
  SHOW(cuMemcpyDtoDAsync(m + 1000, n, 1000, nullptr));
  SHOW(cuCtxSynchronize());
  VALUE(at_m[1005]);

  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  at_m[0] = 77;
  SHOW(cuMemcpyHtoDAsync(d, at_m, 1000, stream));
  SHOW(cuMemcpyDtoHAsync(at_n + 2000, d, 1000, stream));
  SHOW(cuMemcpyAsync(n + 4000, d, 1000, stream));
  SHOW(cuStreamSynchronize(stream));
  VALUE(at_n[2000]);
  VALUE(at_n[4000]);

  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_HOST;
  flat.srcHost = at_m;
  flat.srcPitch = 500;
  flat.srcXInBytes = 3;
  flat.srcY = 2;
  flat.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  flat.dstDevice = n;
  flat.dstPitch = 256;
  flat.dstXInBytes = 1;
  flat.WidthInBytes = 200;
  flat.Height = 30;
  SHOW(cuMemcpy2D(&flat));
  NEED(cuCtxSynchronize());
  VALUE(checksum(at_n, kBytes));
  flat.dstMemoryType = CU_MEMORYTYPE_HOST;
  flat.dstHost = back.data();
  SHOW(cuMemcpy2D(&flat));
  VALUE(checksum(back));
  CUDA_MEMCPY3D deep{};
  deep.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  deep.srcDevice = d;
  deep.srcPitch = 100;
  deep.srcHeight = 10;
  deep.dstMemoryType = CU_MEMORYTYPE_HOST;
  deep.dstHost = at_m;
  deep.dstPitch = 200;
  deep.dstHeight = 20;
  deep.dstZ = 1;
  deep.WidthInBytes = 90;
  deep.Height = 9;
  deep.Depth = 5;
  SHOW(cuMemcpy3D(&deep));
  NEED(cuCtxSynchronize());
  VALUE(checksum(at_m, kBytes));

  CUDA_ARRAY_DESCRIPTOR descriptor{};
  descriptor.Width = 256;
  descriptor.Height = 4;
  descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  descriptor.NumChannels = 1;
  CUarray array;
  NEED(cuArrayCreate(&array, &descriptor));
  SHOW(cuMemcpyHtoA(array, 0, at_m, 256));
  NEED(cuCtxSynchronize());
  at_m[7] ^= 0xff;
  SHOW(cuMemcpyAtoH(at_n + 512, array, 0, 256));
  NEED(cuCtxSynchronize());
  VALUE(checksum(at_n, kBytes));
  NEED(cuArrayDestroy(array));

  // Pinned memory at the other end.
  void* pinned = nullptr;
  NEED(cuMemAllocHost(&pinned, kBytes));
  std::memset(pinned, 9, kBytes);
  SHOW(cuMemcpyAsync(m, reinterpret_cast<CUdeviceptr>(pinned), kBytes, stream));
  SHOW(cuStreamSynchronize(stream));
  VALUE(checksum(at_m, kBytes));
  at_m[kBytes - 1] = 8;
  SHOW(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pinned), m, kBytes, stream));
  SHOW(cuStreamSynchronize(stream));
  VALUE(checksum(pinned, kBytes));
  NEED(cuMemFreeHost(pinned));
  NEED(cuStreamDestroy(stream));
  for (const CUdeviceptr each : {m, n, d}) NEED(cuMemFree(each));
}

void fills() {
  constexpr size_t kBytes = 100'000;
  const CUdeviceptr p = managed(kBytes);
  auto* const at = reinterpret_cast<unsigned char*>(p);
  at[0] = 1;
  SHOW(cuMemsetD8(p + 1, 5, kBytes - 1));
  VALUE(checksum(at, kBytes));
  at[10] = 11;
  SHOW(cuMemsetD16(p + 1000, 0x1234, 1000));
  VALUE(checksum(at, kBytes));
  SHOW(cuMemsetD32(p + 4000, 0x12345678, 1000));
  VALUE(checksum(at, kBytes));
  SHOW(cuMemsetD2D8(p + 10'000, 500, 3, 100, 20));
  VALUE(checksum(at, kBytes));
  at[20'000] = 12;
  SHOW(cuMemsetD2D32Async(p + 30'000, 400, 77, 10, 10, nullptr));
  SHOW(cuCtxSynchronize());
  VALUE(checksum(at, kBytes));
  SHOW(cuMemFree(p));
}

struct Seen {
  CUdeviceptr p;
  unsigned value;
};

// A host function between two kernels reads what the first wrote and writes for the second.
void host_functions(const Kernels& kernels) {
  constexpr unsigned kWords = 5000;
  Seen seen{managed(kWords * 4), 0};
  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  for (int round = 0; round < 5; ++round) {
    words(seen.p)[1] = 1;
    NEED(fill(kernels, seen.p, 10 + round, kWords, stream));
    NEED(cuLaunchHostFunc(
        stream,
        [](void* data) {
          auto& here = *static_cast<Seen*>(data);
          here.value = words(here.p)[4999];
          words(here.p)[0] = 1000;
        },
        &seen));
    NEED(add(kernels, seen.p, seen.p, seen.p, kWords, stream));
    NEED(cuStreamSynchronize(stream));
    VALUE(seen.value);
    VALUE(words(seen.p)[0]);
    VALUE(words(seen.p)[1]);
  }
  NEED(cuStreamDestroy(stream));
  NEED(cuMemFree(seen.p));
}

void threads(const Kernels& kernels) {
  constexpr unsigned kThreads = 6, kWords = 60'000;
  CUcontext context;
  NEED(cuCtxGetCurrent(&context));
  const CUdeviceptr p = managed(kThreads * kWords * 4);
  NEED(fill(kernels, p, 3, kThreads * kWords));
  NEED(cuCtxSynchronize());
  std::vector<uint64_t> sums(kThreads);
  std::vector<std::thread> all;
  for (unsigned t = 0; t < kThreads; ++t) {
    all.emplace_back([&, t] {
      NEED(cuCtxSetCurrent(context));
      for (unsigned i = t; i < kThreads * kWords; i += kThreads) sums[t] += words(p)[i];
      for (unsigned i = t; i < kThreads * kWords; i += kThreads) words(p)[i] = t;
      // Memory of its own, while the others use theirs.
      const CUdeviceptr own = managed(40'000, CU_MEM_ATTACH_HOST);
      for (unsigned i = 0; i < 10'000; ++i) words(own)[i] = i + t;
      for (unsigned i = 0; i < 10'000; ++i) sums[t] += words(own)[i];
      NEED(cuMemFree(own));
    });
  }
  for (std::thread& each : all) each.join();
  VALUE(std::accumulate(sums.begin(), sums.end(), uint64_t{0}));
  NEED(add(kernels, p, p, p, kThreads * kWords));
  NEED(cuCtxSynchronize());
  VALUE(checksum(words(p), kThreads * kWords * 4));
  NEED(cuMemFree(p));
}

// Where all of it is here after a synchronisation.
void system_calls(const Kernels& kernels) {
  constexpr unsigned kWords = 50'000;
  const CUdeviceptr p = managed(kWords * 4), q = managed(kWords * 4);
  int ends[2];
  if (::pipe(ends) != 0) std::exit(3);
  for (unsigned round = 1; round < 5; ++round) {
    NEED(fill(kernels, p, round, kWords));
    NEED(round % 2 == 0 ? cuCtxSynchronize() : cuStreamSynchronize(nullptr));
    VALUE(::write(ends[1], words(p), 40'000));
    VALUE(::read(ends[0], words(q) + 100 * round, 40'000));
    NEED(add(kernels, q, p, q, kWords));
    NEED(cuCtxSynchronize());
    VALUE(checksum(words(q), kWords * 4));
  }
  ::close(ends[0]);
  ::close(ends[1]);
  NEED(cuMemFree(p));
  NEED(cuMemFree(q));
}

// The memory is the parent's.
void forked_child() {
  const CUdeviceptr p = managed(4096);
  words(p)[0] = 5;
  for (const bool writes : {false, true}) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(2);
      if (writes) words(p)[0] = 6;
      ::_exit(words(p)[0] == 5 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    VALUE(WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status));
  }
  VALUE(words(p)[0]);
  NEED(cuMemFree(p));
}

}  // namespace

int main(int argc, char**) {
  // With a sanitizer's handler a child that must not touch the memory would end otherwise.
  ::signal(SIGSEGV, SIG_DFL);
  ::signal(SIGBUS, SIG_DFL);
  make_context();
  int value = -1;
  SHOW(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
  VALUE(value);
  const Kernels kernels = load();
  wrong_arguments();
  attributes();
  in_a_loop(kernels);
  many_allocations(kernels);
  large(kernels);
  pointers_inside(kernels);
  copies();
  fills();
  host_functions(kernels);
  threads(kernels);
  if (argc > 1) system_calls(kernels);
  forked_child();
  return 0;
}
