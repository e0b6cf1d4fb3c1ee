// Variables with .attribute(.managed): the same pointer for host and device, initial values,
// several modules and libraries whose variables lie side by side, their ends.
#include <array>
#include <barrier>
#include <thread>

#include "tests/conformance/conformance.h"

namespace {

// A number, a pointer, an array of several pages, and a variable that is not managed. bump() adds
// `plain` to `first` and copies it to *out, follow() adds 1 to what `link` points to, fill(value)
// fills the array.
const char* const kFirst = R"ptx(
.version 7.5
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 first = 5;
.visible .global .attribute(.managed) .align 8 .u64 link;
.visible .global .attribute(.managed) .align 4 .b8 big[20000];
.visible .global .align 4 .u32 plain = 7;
.visible .entry bump(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.global.u32 %r1, [first];
  ld.global.u32 %r2, [plain];
  add.u32 %r3, %r1, %r2;
  st.global.u32 [first], %r3;
  st.global.u32 [%rd1], %r3;
  ret;
}
.visible .entry follow()
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.global.u64 %rd1, [link];
  ld.global.u32 %r1, [%rd1];
  add.u32 %r2, %r1, 1;
  st.global.u32 [%rd1], %r2;
  ret;
}
.visible .entry fill(.param .u32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u32 %r1, [value];
  mov.u32 %r2, 0;
  mov.u64 %rd1, big;
next:
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, 5000;
  @%p1 bra next;
  ret;
}
)ptx";

const char* const kSecond = R"ptx(
.version 7.5
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 second = 50;
.visible .entry raise()
{
  .reg .b32 %r<3>;
  ld.global.u32 %r1, [second];
  add.u32 %r2, %r1, 1;
  st.global.u32 [second], %r2;
  ret;
}
)ptx";

volatile uint32_t* words(CUdeviceptr p) { return reinterpret_cast<volatile uint32_t*>(p); }

CUmodule load(const char* image) {
  CUmodule module;
  NEED(cuModuleLoadData(&module, image));
  return module;
}

CUdeviceptr variable(CUmodule module, const char* name) {
  CUdeviceptr p = 0;
  NEED(cuModuleGetGlobal(&p, nullptr, module, name));
  return p;
}

CUcontext another_context() {
  CUcontext context;
  NEED(cuCtxCreate_v2(&context, 0, 0));
  return context;
}

template <typename... Values>
void run(CUmodule module, const char* name, Values... values) {
  CUfunction function;
  NEED(cuModuleGetFunction(&function, module, name));
  void* parameters[] = {&values..., nullptr};
  SHOW(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
}

void of_a_module() {
  std::printf("-- of a module\n");
  const CUmodule module = load(kFirst);
  CUdeviceptr first = 0;
  size_t bytes = 0;
  SHOW(cuModuleGetGlobal(&first, &bytes, module, "first"));
  VALUE(bytes);
  VALUE(*words(first));
  const CUdeviceptr link = variable(module, "link"), big = variable(module, "big");
  *words(first) = 10;
  run(module, "bump", big + 8);
  SHOW(cuCtxSynchronize());
  VALUE(*words(first));
  VALUE(words(big)[2]);
  VALUE(words(big)[3]);

  // A pointer to one of them in another one.
  *reinterpret_cast<CUdeviceptr*>(link) = big + 16384;
  words(big)[4096] = 70;
  run(module, "follow");
  SHOW(cuCtxSynchronize());
  VALUE(words(big)[4096]);
  VALUE(words(big)[2]);
  run(module, "fill", 0x01020304u);
  SHOW(cuCtxSynchronize());
  VALUE(checksum(reinterpret_cast<void*>(big), 20000));
  VALUE(*words(first));

  std::printf("-- as memory\n");
  uint32_t value = 21;
  SHOW(cuMemcpyHtoD(first, &value, 4));
  VALUE(*words(first));
  *words(first) = 22;
  SHOW(cuMemcpyDtoH(&value, first, 4));
  VALUE(value);
  SHOW(cuMemcpy(big, first, 4));
  VALUE(words(big)[0]);
  SHOW(cuMemsetD32(big, 9, 5000));
  VALUE(words(big)[4999]);
  unsigned managed = 7;
  SHOW(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, first));
  VALUE(managed);
  SHOW(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, variable(module, "plain")));
  VALUE(managed);
  CUdeviceptr base = 0;
  SHOW(cuMemGetAddressRange(&base, &bytes, big + 100));
  VALUE(base == big);
  VALUE(bytes);
  int mostly = 7;
  SHOW(cuMemRangeGetAttribute(&mostly, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, big + 8192, 4096));
  VALUE(mostly);
  SHOW(cuStreamAttachMemAsync(nullptr, big, 0, CU_MEM_ATTACH_HOST));
  VALUE(words(big)[4999]);
  SHOW(cuMemFree(first));
  VALUE(*words(first));
  SHOW(cuModuleGetGlobal(&first, &bytes, module, "none"));
  SHOW(cuModuleUnload(module));
}

// Their variables may share a page; one of the modules ends before the other.
void of_two_modules() {
  std::printf("-- of two modules\n");
  CUmodule one = load(kFirst);
  const CUmodule other = load(kSecond);
  CUdeviceptr first = variable(one, "first");
  *words(first) = 100;
  // While the first one's page is here.
  const CUdeviceptr second = variable(other, "second");
  VALUE(*words(second));
  VALUE(*words(first));
  *words(second) = 200;
  run(other, "raise");
  run(one, "bump", first);
  SHOW(cuCtxSynchronize());
  VALUE(*words(second));
  VALUE(*words(first));
  SHOW(cuModuleUnload(one));
  VALUE(*words(second));
  *words(second) = *words(second) + 10;
  run(other, "raise");
  SHOW(cuCtxSynchronize());
  VALUE(*words(second));
  // New ones, with their initial values.
  for (int i = 0; i < 3; ++i) {
    one = load(kFirst);
    first = variable(one, "first");
    VALUE(*words(first));
    *words(first) = 1;
    run(one, "bump", first);
    SHOW(cuCtxSynchronize());
    VALUE(*words(first));
    VALUE(*words(second));
    SHOW(cuModuleUnload(one));
  }
  SHOW(cuModuleUnload(other));
}

// A module's variables end with its context; its neighbour's stay.
void of_two_contexts(CUcontext context) {
  std::printf("-- of two contexts\n");
  const CUmodule other = load(kSecond);
  const CUcontext second = another_context();
  const CUmodule one = load(kFirst);
  const CUdeviceptr first = variable(one, "first");
  *words(first) = 100;
  run(one, "bump", first);
  NEED(cuCtxSynchronize());
  NEED(cuCtxSetCurrent(context));
  const CUdeviceptr neighbour = variable(other, "second");
  *words(neighbour) = 300;
  VALUE(*words(first));
  SHOW(cuCtxDestroy(second));
  VALUE(*words(neighbour));
  *words(neighbour) = *words(neighbour) + 1;
  run(other, "raise");
  SHOW(cuCtxSynchronize());
  VALUE(*words(neighbour));
  SHOW(cuModuleUnload(other));
}

// Each thread has a module; all their variables lie in a few pages. In turns all threads write and
// read theirs, and then all run kernels. One of them unloads its module and loads it again while
// the others write and read.
void of_many_threads(CUcontext context) {
  std::printf("-- of many threads\n");
  constexpr int kThreads = 6, kRounds = 40;
  std::barrier all(kThreads);
  std::array<unsigned, kThreads> wrong{};
  const auto work = [&](int number) {
    NEED(cuCtxSetCurrent(context));
    CUstream stream;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmodule module = load(kFirst);
    CUdeviceptr first = variable(module, "first"), big = variable(module, "big");
    uint32_t want = 5;
    for (int round = 0; round < kRounds; ++round) {
      if (round % kThreads == number) {
        NEED(cuModuleUnload(module));
        module = load(kFirst);
        first = variable(module, "first"), big = variable(module, "big");
        want = 5;
      }
      wrong[number] += *words(first) != want;
      if (round % 3 != 0) *words(first) = want = static_cast<uint32_t>(number * 1000 + round);
      words(big)[number] = want;
      wrong[number] += words(big)[number] != want;
      all.arrive_and_wait();
      CUfunction function;
      NEED(cuModuleGetFunction(&function, module, "bump"));
      CUdeviceptr out = big + 4 * (100 + number);
      void* parameters[] = {&out};
      NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
      NEED(cuStreamSynchronize(stream));
      want += 7;
      all.arrive_and_wait();
      wrong[number] += *words(first) != want;
      wrong[number] += words(big)[100 + number] != want;
      wrong[number] += words(big)[number] + 7 != want;
    }
    NEED(cuModuleUnload(module));
    NEED(cuStreamDestroy(stream));
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  for (const unsigned each : wrong) VALUE(each);
}

// One variable for all contexts.
void of_a_library(CUcontext context) {
  std::printf("-- of a library\n");
  CUlibrary library;
  NEED(cuLibraryLoadData(&library, kFirst, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUdeviceptr first = 0, again = 0;
  size_t bytes = 0;
  SHOW(cuLibraryGetManaged(&first, &bytes, library, "first"));
  VALUE(bytes);
  SHOW(cuLibraryGetManaged(&again, nullptr, library, "first"));
  VALUE(first == again);
  VALUE(*words(first));
  *words(first) = 30;
  for (int i = 0; i < 2; ++i) {
    const CUcontext second = i == 1 ? another_context() : nullptr;
    CUmodule module;
    NEED(cuLibraryGetModule(&module, library));
    run(module, "bump", first);
    SHOW(cuCtxSynchronize());
    VALUE(*words(first));
    if (second == nullptr) continue;
    NEED(cuCtxDestroy(second));
    NEED(cuCtxSetCurrent(context));
  }
  *words(first) = *words(first) + 5;
  VALUE(*words(first));
  // The context in which it was found ends.
  const CUcontext second = another_context();
  CUdeviceptr link = 0;
  SHOW(cuLibraryGetManaged(&link, &bytes, library, "link"));
  VALUE(*words(link));
  CUmodule module;
  NEED(cuLibraryGetModule(&module, library));
  VALUE(variable(module, "first") == first);
  VALUE(variable(module, "link") == link);
  *words(link) = 77;
  NEED(cuCtxDestroy(second));
  NEED(cuCtxSetCurrent(context));
  VALUE(*words(link));
  *words(link) = 78;
  uint32_t value = 0;
  SHOW(cuMemcpyDtoH(&value, link, 4));
  VALUE(value);
  SHOW(cuLibraryGetManaged(&again, nullptr, library, "none"));
  SHOW(cuLibraryGetManaged(&again, nullptr, library, "plain"));
  SHOW(cuLibraryGetManaged(&again, nullptr, library, nullptr));
  SHOW(cuLibraryGetManaged(nullptr, nullptr, library, "first"));
  SHOW(cuLibraryUnload(library));
}

}  // namespace

int main() {
  const CUcontext context = make_context();
  of_a_module();
  of_two_modules();
  of_two_contexts(context);
  of_many_threads(context);
  of_a_library(context);
  return 0;
}
