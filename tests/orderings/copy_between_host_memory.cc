// A copy between host memory comes behind the host function in its stream, whatever the call names
// the memory as. CUDA documents that such a call returns when the copy is over; how long each one
// took is noted.
#include <functional>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kFunctionTakes = 30'000;  // microseconds
CUstream stream;

struct Words {
  explicit Words(unsigned flags) {
    void* memory = nullptr;
    CU(cuMemHostAlloc(&memory, 4096, flags));
    words = static_cast<int*>(memory);
    CU(cuMemHostGetDevicePointer(&device, memory, 0));
    words[0] = 0;
  }
  ~Words() { CU(cuMemFreeHost(words)); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  int* words = nullptr;
  CUdeviceptr device = 0;
};

struct Function {
  int* word;
  int value;
};

void run_slowly(void* data) {
  const auto& function = *static_cast<Function*>(data);
  usleep(kFunctionTakes);
  *function.word = function.value;
}

void behind_a_function(const char* name, const Words& to, const Words& from, int value,
                       const std::function<CUresult()>& copy) {
  step(name);
  Function function{from.words, value};
  CU(cuLaunchHostFunc(stream, run_slowly, &function));
  const double begin = now_seconds();
  CU(copy());
  const double took = now_seconds() - begin;
  CU(cuStreamSynchronize(stream));
  if (to.words[0] != value) wrong("%s: the word is %d, not %d", name, to.words[0], value);
  note("%s took %u us, the function %u", name, microseconds(took), kFunctionTakes);
}

void all_forms(unsigned to_flags, unsigned from_flags) {
  const Words to(to_flags), from(from_flags);
  static int value = 0;
  behind_a_function("cuMemcpyDtoDAsync", to, from, ++value,
                    [&] { return cuMemcpyDtoDAsync(to.device, from.device, 4, stream); });
  behind_a_function("cuMemcpyHtoDAsync", to, from, ++value,
                    [&] { return cuMemcpyHtoDAsync(to.device, from.words, 4, stream); });
  behind_a_function("cuMemcpyDtoHAsync", to, from, ++value,
                    [&] { return cuMemcpyDtoHAsync(to.words, from.device, 4, stream); });
  behind_a_function("cuMemcpyAsync", to, from, ++value,
                    [&] { return cuMemcpyAsync(to.device, from.device, 4, stream); });
  behind_a_function("cuMemcpy2DAsync", to, from, ++value, [&] {
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = from.device, rows.dstDevice = to.device;
    rows.srcPitch = rows.dstPitch = 8;
    rows.WidthInBytes = 4;
    rows.Height = 2;
    return cuMemcpy2DAsync(&rows, stream);
  });
}

}  // namespace

int main() {
  begin();
  use_primary();
  stream = make_stream();
  for (const unsigned to : {0, CU_MEMHOSTALLOC_DEVICEMAP})
    for (const unsigned from : {0, CU_MEMHOSTALLOC_DEVICEMAP}) all_forms(to, from);
  right();
}
