// cuGetProcAddress: versions, flags, unknown names.
#include "tests/conformance/conformance.h"

namespace {

void ask(const char* name, int version, cuuint64_t flags) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  CUresult result = cuGetProcAddress(name, &function, version, flags, &status);
  std::printf("%s@%d flags %llu: %s, %s, status %d\n", name, version,
              static_cast<unsigned long long>(flags), error_name(result),
              function == nullptr ? "null" : "found", static_cast<int>(status));
}

}  // namespace

int main() {
  int version = 0;
  NEED(cuDriverGetVersion(&version));
  ask("cuInit", 2000, 0);
  ask("cuMemAlloc", 2000, 0);
  ask("cuMemAlloc", 3020, 0);
  ask("cuMemAlloc", version, 0);
  ask("cuMemAlloc", version + 1000, 0);
  ask("cuMemAllocAsync", 11010, 0);
  ask("cuMemAllocAsync", 11020, 0);
  ask("cuMemcpyAsync", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  ask("cuGetProcAddress", 11030, 0);
  ask("cuGetProcAddress", 12000, 0);
  ask("cuNoSuchFunction", version, 0);
  ask("", version, 0);
  void* function = nullptr;
  SHOW(cuGetProcAddress("cuInit", &function, version, 0xff00, nullptr));
  using Init = CUresult (*)(unsigned);
  NEED(cuGetProcAddress("cuInit", &function, version, 0, nullptr));
  SHOW(reinterpret_cast<Init>(function)(0));
  return 0;
}
