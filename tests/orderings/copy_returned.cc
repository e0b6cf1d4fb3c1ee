// When a synchronous copy has returned, everything before it in its stream has ended: queries of
// events and streams say so, and what the device wrote into host memory is there. So it is when a
// fill of host memory has returned.
#include <functional>

#include "tests/orderings/late_copy.h"

namespace {

CUstream blocking;

void must_succeed_after_copy(const char* what, const std::function<CUresult()>& query) {
  CU(cuMemcpyHtoD(target, source, sizeof *source));
  step(what);
  const CUresult result = query();
  if (result != CUDA_SUCCESS) wrong("%s memory: %s gave %s", memory_name, what, name_of(result));
}

// Each query in turn is the first one after a copy.
void queries() {
  CUevent first, last;
  CU(cuEventCreate(&first, CU_EVENT_DEFAULT));
  CU(cuEventCreate(&last, CU_EVENT_DEFAULT));
  const auto work = [&](CUstream stream) {
    CU(cuEventRecord(first, stream));
    CU(launch(spin, stream, kBusy));
    CU(cuEventRecord(last, stream));
  };
  for (const CUstream stream : {blocking, CUstream{}}) {
    work(stream);
    must_succeed_after_copy("cuEventQuery", [&] { return cuEventQuery(last); });
    work(stream);
    must_succeed_after_copy("cuStreamQuery", [&] { return cuStreamQuery(stream); });
    work(stream);
    must_succeed_after_copy("cuStreamQuery of the legacy stream",
                            [] { return cuStreamQuery(nullptr); });
    work(stream);
    float milliseconds = 0;
    must_succeed_after_copy("cuEventElapsedTime",
                            [&] { return cuEventElapsedTime(&milliseconds, first, last); });
    HOLDS(milliseconds > kBusy / 2000.0);
  }
  CU(cuEventDestroy(first));
  CU(cuEventDestroy(last));
}

void what_the_device_wrote(int* words) {
  step("host memory that earlier work writes");
  clear();
  volatile int* const written = words;
  words[0] = words[512] = 0;
  CU(cuMemsetD32(target, 41, 1));
  CU(launch(spin, nullptr, kBusy));
  CU(launch(store, nullptr, device_pointer(words), 42));
  CU(cuMemcpyDtoHAsync(words + 512, target, sizeof(int), nullptr));
  CU(cuMemcpyHtoD(seen, source, sizeof *source));
  if (written[0] != 42) wrong("%s memory: a kernel's word is %d, not 42", memory_name, written[0]);
  if (written[512] != 41)
    wrong("%s memory: a copied word is %d, not 41", memory_name, written[512]);
}

void fills(int* words) {
  step("fills of host memory");
  volatile int* const written = words;
  words[0] = words[1] = 0;
  CU(launch(spin, nullptr, kBusy));
  CU(cuMemsetD32(device_pointer(words), 43, 1));
  if (written[0] != 43) wrong("a filled word is %d, not 43", written[0]);
  CU(launch(spin, nullptr, kBusy));
  CU(cuMemsetD2D8(device_pointer(words), 64, 1, 8, 2));
  if (written[1] != 0x01010101) wrong("a word of a filled box is %x", written[1]);
}

}  // namespace

int main() {
  prepare();
  CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  with_each_memory(queries);
  int* const words = pinned_words();
  with_each_memory([words] { what_the_device_wrote(words); });
  fills(words);
  right();
}
