// Managed memory of several contexts, of contexts that end, and of one that has failed.
#include "tests/conformance/in_child.h"
#include "tests/conformance/kernels.h"

namespace {

struct Place {
  CUcontext context;
  CUfunction fill, trap;
};

// The current context becomes a place to work in.
Place here() {
  Place place{};
  CUmodule module;
  NEED(cuCtxGetCurrent(&place.context));
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&place.fill, module, "fill"));
  NEED(cuModuleGetFunction(&place.trap, module, "trap_now"));
  return place;
}
Place make_place() {
  make_context();
  return here();
}
Place primary() {
  CUcontext context;
  NEED(cuInit(0));
  NEED(cuDevicePrimaryCtxRetain(&context, 0));
  NEED(cuCtxSetCurrent(context));
  return here();
}

unsigned* managed(size_t words) {
  CUdeviceptr p = 0;
  NEED(cuMemAllocManaged(&p, words * sizeof(unsigned), CU_MEM_ATTACH_GLOBAL));
  return reinterpret_cast<unsigned*>(p);
}

CUresult fill(const Place& place, unsigned* to, unsigned value, unsigned n) {
  auto p = reinterpret_cast<CUdeviceptr>(to);
  void* parameters[] = {&p, &value, &n};
  return cuLaunchKernel(place.fill, (n + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters,
                        nullptr);
}

CUresult free_words(unsigned* words) { return cuMemFree(reinterpret_cast<CUdeviceptr>(words)); }

// Small allocations of both lie close to each other.
void one_of_two_ends() {
  const Place first = make_place();
  unsigned* const a = managed(1024);
  a[0] = 1;
  NEED(fill(first, a, 2, 10));
  const Place second = make_place();
  unsigned* const b = managed(1024);
  b[0] = 5;
  b[11] = 9;
  NEED(cuCtxSetCurrent(first.context));
  NEED(cuCtxSynchronize());
  VALUE(a[0]);
  SHOW(cuCtxDestroy(first.context));
  NEED(cuCtxSetCurrent(second.context));
  SHOW(fill(second, b, 6, 10));
  SHOW(cuCtxSynchronize());
  VALUE(b[0]);
  VALUE(b[11]);
  SHOW(free_words(b));
  unsigned* const c = managed(25'000);
  unsigned sum = 0;
  for (int i = 0; i < 25'000; ++i) sum += c[i];
  VALUE(sum);
  c[20'000] = 4;
  SHOW(fill(second, c, 6, 10));
  SHOW(cuCtxSynchronize());
  VALUE(c[9]);
  VALUE(c[20'000]);
}

void one_after_the_other() {
  primary();
  for (unsigned i = 0; i < 20; ++i) {
    const Place place = make_place();
    unsigned* const words = managed(3 << 18);
    words[0] = i;
    words[500'000] = i;
    NEED(fill(place, words, i + 100, 10));
    NEED(cuCtxSynchronize());
    if (words[0] != i + 100 || words[500'000] != i) std::printf("wrong in %u\n", i);
    if (i % 2 != 0) NEED(free_words(words));
    NEED(cuCtxDestroy(place.context));
  }
}

void work_again(const Place& place, unsigned* words) {
  words[0] = 3;
  words[20] = 1;
  SHOW(fill(place, words, 8, 10));
  SHOW(cuCtxSynchronize());
  VALUE(words[0]);
  VALUE(words[20]);
}

void reset_after_an_error() {
  const Place place = primary();
  unsigned* const words = managed(1 << 18);
  words[0] = 1;
  NEED(fill(place, words, 3, 5));
  NEED(cuCtxSynchronize());
  NEED(cuLaunchKernel(place.trap, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  SHOW(cuCtxSynchronize());
  SHOW(fill(place, words, 4, 5));
  SHOW(free_words(words));
  SHOW(cuDevicePrimaryCtxReset(0));
  const Place again = primary();
  work_again(again, managed(1024));
}

void another_beside_an_error() {
  const Place sound = primary(), place = make_place();
  unsigned* const words = managed(1 << 18);
  words[0] = 1;
  NEED(fill(place, words, 3, 5));
  NEED(cuCtxSynchronize());
  NEED(cuLaunchKernel(place.trap, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  SHOW(cuCtxSynchronize());
  SHOW(fill(place, words, 4, 5));
  SHOW(cuCtxSetCurrent(sound.context));
  unsigned* const others = managed(1024);
  work_again(sound, others);
  SHOW(cuCtxDestroy(place.context));
  SHOW(cuCtxSetCurrent(sound.context));
  work_again(sound, others);
}

}  // namespace

// With an argument: what comes after an error. On a driver of a GPU nothing does: all contexts of
// the process have failed.
int main(int argc, char**) {
  if (argc > 1) {
    in_child("a reset after an error", reset_after_an_error);
    in_child("another context beside an error", another_beside_an_error);
    return 0;
  }
  in_child("one of two contexts ends", one_of_two_ends);
  in_child("one context after the other", one_after_the_other);
  return 0;
}
