// Functions of the old interface, with 32-bit addresses and sizes, by their plain names: drivers of
// today have no context for them. And others that every driver answers without doing anything.
#include "tests/conformance/by_name.h"

namespace {

// What is written beyond 32 bits would show.
constexpr uint64_t kUntouched = 0x1111111111111111;

void old_functions() {
  uint64_t first = kUntouched, second = kUntouched;
  char bytes[64]{};
  SHOW(call("cuMemAlloc", &first, 256u));
  VALUE(first == (kUntouched & ~uint64_t{UINT32_MAX}));
  SHOW(call("cuMemAlloc", static_cast<void*>(nullptr), 256u));
  first = kUntouched;
  SHOW(call("cuMemGetInfo", &first, &second));
  VALUE(first == (kUntouched & ~uint64_t{UINT32_MAX}));
  VALUE(second == (kUntouched & ~uint64_t{UINT32_MAX}));
  void* host = bytes;
  SHOW(call("cuMemAllocHost", &host, 64u));
  VALUE(host == nullptr);
  SHOW(call("cuMemcpyHtoD", 4096u, static_cast<const void*>(bytes), 16u));
  SHOW(call("cuMemcpyDtoH", static_cast<void*>(bytes), 4096u, 16u));
  SHOW(call("cuMemsetD8", 4096u, static_cast<unsigned char>(1), 16u));
  SHOW(call("cuMemcpy2D", static_cast<void*>(bytes)));
  SHOW(call("cuArrayCreate", static_cast<void*>(&host), static_cast<void*>(bytes)));
  first = kUntouched;
}

void CUDA_CB notified(CUasyncNotificationInfo*, void*, CUasyncCallbackHandle) {}

void others() {
  unsigned total = 0;
  SHOW(call("cuDeviceTotalMem", &total, 0));
  size_t all = 0;
  NEED(cuDeviceTotalMem(&all, 0));
  VALUE(total == (all > UINT32_MAX ? UINT32_MAX : all));
  SHOW(call("cuDeviceTotalMem", static_cast<void*>(nullptr), 0));
  SHOW(call("cuDeviceTotalMem", &total, 99));
  SHOW(call("cuProfilerInitialize", "config", "output", 0));
  int list = 0;
  SHOW(cuDeviceGetNvSciSyncAttributes(&list, 0, 1));
  SHOW(cuDeviceGetNvSciSyncAttributes(nullptr, 0, 1));
  SHOW(cuDeviceGetNvSciSyncAttributes(&list, 99, 1));
  CUasyncCallbackHandle handle = nullptr;
  SHOW(cuDeviceRegisterAsyncNotification(0, notified, nullptr, &handle));
  SHOW(cuDeviceRegisterAsyncNotification(0, nullptr, nullptr, &handle));
  SHOW(cuDeviceRegisterAsyncNotification(99, notified, nullptr, &handle));
  SHOW(cuDeviceUnregisterAsyncNotification(0, nullptr));
  SHOW(cuDeviceUnregisterAsyncNotification(99, handle));
  SHOW(cuDeviceUnregisterAsyncNotification(0, handle));
}

}  // namespace

int main() {
  old_functions();
  NEED(cuInit(0));
  old_functions();
  others();
  make_context();
  old_functions();
  SHOW(cuCtxSynchronize());
  return 0;
}
