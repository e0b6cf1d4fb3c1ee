// Notifications of a device to the program. CUDA has one, that a budget of memory shrank, which no
// server sends: the registration is kept, and the function never called.
#include <mutex>
#include <set>

#include "client/manual/common.h"

namespace fargpu::client {
namespace {

struct Registrations {
  std::mutex mutex;
  std::set<std::pair<CUdevice, uintptr_t>> live;
  uintptr_t last = 0;
};

Registrations& registrations() {
  static auto& all = *new Registrations;
  return all;
}

}  // namespace

CUresult manual_cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback callbackFunc,
                                                  void* userData, CUasyncCallbackHandle* callback) {
  (void)userData;
  if (Process::get().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (callbackFunc == nullptr || callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Registrations& all = registrations();
  const std::lock_guard lock(all.mutex);
  all.live.emplace(device, ++all.last);
  *callback = reinterpret_cast<CUasyncCallbackHandle>(all.last);
  return CUDA_SUCCESS;
}

CUresult manual_cuDeviceUnregisterAsyncNotification(CUdevice device,
                                                    CUasyncCallbackHandle callback) {
  if (Process::get().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Registrations& all = registrations();
  const std::lock_guard lock(all.mutex);
  const bool known = all.live.erase({device, reinterpret_cast<uintptr_t>(callback)}) != 0;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace fargpu::client
