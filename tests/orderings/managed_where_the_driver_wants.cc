// Managed memory is there and keeps its contents where the server's driver takes no wishes for
// addresses.
// sim: FARGPU_SIM_WANTED_ADDRESSES=0
// again: FARGPU_TEST_USERFAULTFD=refused
#include <vector>

#include "tests/orderings/check.h"

int main() {
  begin();
  use_primary();
  const CUfunction load = kernel_of(load_kernels(), "load");
  const CUdeviceptr seen = device_memory(sizeof(int));
  std::vector<CUdeviceptr> all;
  for (const size_t bytes : {size_t{4096}, size_t{3} << 20, size_t{64} << 20, size_t{5} << 20}) {
    step("an allocation");
    CUdeviceptr memory;
    CU(cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL));
    all.push_back(memory);
    auto* const words = reinterpret_cast<int*>(memory);
    const size_t last = bytes / sizeof(int) - 1;
    step("a kernel reads what the host wrote");
    words[last] = static_cast<int>(bytes) + 1;
    CU(launch(load, nullptr, seen, words + last));
    int value = 0;
    CU(cuMemcpyDtoH(&value, seen, sizeof value));
    if (value != static_cast<int>(bytes) + 1) wrong("a kernel read %d in %zu bytes", value, bytes);
    step("the host reads what the device wrote");
    CU(cuMemsetD32(memory, 7, bytes / sizeof(int)));
    if (words[0] != 7 || words[last] != 7) wrong("the host read %d, %d", words[0], words[last]);
  }
  for (const CUdeviceptr each : all) CU(cuMemFree(each));
  right();
}
