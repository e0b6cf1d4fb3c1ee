// Managed memory that is attached to one stream, or to the host, is used by kernels of others. A
// GPU with concurrent access lets them: they see what the host wrote, and the host what they wrote.
#include "tests/orderings/check.h"

namespace {

CUfunction increment;

// Each kernel adds one to what the host has written.
void count(int* word, CUstream stream, const char* what) {
  step(what);
  for (int round = 1; round <= 20; ++round) {
    *word = 100 * round;
    CU(launch(increment, stream, reinterpret_cast<CUdeviceptr>(word)));
    CU(stream == nullptr ? cuCtxSynchronize() : cuStreamSynchronize(stream));
    if (*word != 100 * round + 1) wrong("%s: round %d: %d", what, round, *word);
    // Two kernels without a look in between.
    for (int i = 0; i < 2; ++i) CU(launch(increment, stream, reinterpret_cast<CUdeviceptr>(word)));
    CU(cuCtxSynchronize());
    if (*word != 100 * round + 3) wrong("%s: round %d: %d after three", what, round, *word);
  }
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUmodule kernels = load_kernels();
  increment = kernel_of(kernels, "increment");
  const CUstream own = make_stream(), other = make_stream();
  CUdeviceptr memory = 0;
  CU(cuMemAllocManaged(&memory, 1 << 20, CU_MEM_ATTACH_HOST));
  int* const word = reinterpret_cast<int*>(memory) + 1000;
  count(word, other, "memory of the host, a stream");
  CU(cuStreamAttachMemAsync(own, memory, 0, CU_MEM_ATTACH_SINGLE));
  CU(cuStreamSynchronize(own));
  count(word, own, "memory of a stream, the same one");
  count(word, other, "memory of a stream, another one");
  count(word, nullptr, "memory of a stream, the default one");
  CU(cuStreamAttachMemAsync(own, memory, 0, CU_MEM_ATTACH_HOST));
  CU(cuStreamSynchronize(own));
  count(word, other, "memory that went back to the host");
  CU(cuStreamAttachMemAsync(own, memory, 0, CU_MEM_ATTACH_GLOBAL));
  CU(cuStreamSynchronize(own));
  count(word, other, "memory of all");
  right();
}
