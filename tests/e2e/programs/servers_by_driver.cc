// Copies by the driver API on two devices, which may be of two servers: both ends on the device
// that is not current, contexts that are left open, device memory that is named as host memory or
// as unified, in two and three dimensions and beside arrays.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "driver_check.h"

namespace {

constexpr size_t kWidth = 64, kRows = 8, kBytes = kWidth * kRows;

struct OnDevice {
  CUcontext context = nullptr;
  CUdeviceptr from = 0, to = 0;
};

int set_up(OnDevice* on, CUdevice device) {
  CHECK(cuDevicePrimaryCtxRetain(&on->context, device));
  CHECK(cuCtxSetCurrent(on->context));
  CHECK(cuMemAlloc(&on->from, kBytes));
  CHECK(cuMemAlloc(&on->to, kBytes));
  return 0;
}

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                            \
    }                                                                      \
  } while (0)

// `copy` brings what is in `from` to `to`.
template <typename Copy>
int check(CUdeviceptr from, CUdeviceptr to, Copy&& copy) {
  static uint8_t value = 0;
  std::vector<uint8_t> bytes(kBytes);
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + value);
  ++value;
  CHECK(cuMemcpyHtoD(from, bytes.data(), kBytes));
  CHECK(cuMemsetD8(to, 0, kBytes));
  if (copy(from, to) != 0) return 1;
  CHECK(cuCtxSynchronize());
  std::vector<uint8_t> back(kBytes);
  CHECK(cuMemcpyDtoH(back.data(), to, kBytes));
  EXPECT(back == bytes);
  return 0;
}

int peer(CUdeviceptr from, CUdeviceptr to) {
  CHECK(cuMemcpyPeer(to, nullptr, from, nullptr, kBytes));
  return 0;
}
int peer_async(CUdeviceptr from, CUdeviceptr to) {
  CHECK(cuMemcpyPeerAsync(to, nullptr, from, nullptr, kBytes, nullptr));
  return 0;
}
int peer_3d(CUdeviceptr from, CUdeviceptr to) {
  CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.srcPitch = copy.dstPitch = copy.WidthInBytes = kWidth;
  copy.srcHeight = copy.dstHeight = copy.Height = kRows;
  copy.Depth = 1;
  CHECK(cuMemcpy3DPeer(&copy));
  return 0;
}

template <typename Description>
void describe(Description* copy, CUmemorytype type, CUdeviceptr from, CUdeviceptr to) {
  copy->srcMemoryType = copy->dstMemoryType = type;
  if (type == CU_MEMORYTYPE_HOST) {
    copy->srcHost = reinterpret_cast<const void*>(from);
    copy->dstHost = reinterpret_cast<void*>(to);
  } else {
    copy->srcDevice = from;
    copy->dstDevice = to;
  }
  copy->srcPitch = copy->dstPitch = copy->WidthInBytes = kWidth;
  copy->Height = kRows;
}

template <CUmemorytype kType>
int flat(CUdeviceptr from, CUdeviceptr to) {
  CUDA_MEMCPY2D copy{};
  describe(&copy, kType, from, to);
  CHECK(cuMemcpy2D(&copy));
  return 0;
}
template <CUmemorytype kType>
int box(CUdeviceptr from, CUdeviceptr to) {
  CUDA_MEMCPY3D copy{};
  describe(&copy, kType, from, to);
  copy.Depth = 1;
  CHECK(cuMemcpy3D(&copy));
  return 0;
}

// From memory that is named as the host's, and back, by an array of the same device.
int arrays(const OnDevice& on, CUcontext current) {
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR descriptor{};
  descriptor.Width = kBytes;
  descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  descriptor.NumChannels = 1;
  CHECK(cuCtxSetCurrent(on.context));
  CHECK(cuArrayCreate(&array, &descriptor));
  CHECK(cuCtxSetCurrent(current));
  const auto through = [array](CUdeviceptr from, CUdeviceptr to) {
    CHECK(cuMemcpyHtoA(array, 0, reinterpret_cast<const void*>(from), kBytes));
    CHECK(cuMemcpyAtoH(reinterpret_cast<void*>(to), array, 0, kBytes));
    return 0;
  };
  if (check(on.from, on.to, through) != 0) return 1;
  CHECK(cuArrayDestroy(array));
  return 0;
}

// With `current` current.
int copies(const OnDevice& current, const OnDevice& other) {
  CHECK(cuCtxSetCurrent(current.context));
  const CUdeviceptr ends[][2] = {
      {other.from, other.to}, {current.from, other.to}, {other.from, current.to}};
  for (const auto& [from, to] : ends) {
    for (const auto& copy :
         {peer, peer_async, peer_3d, flat<CU_MEMORYTYPE_UNIFIED>, box<CU_MEMORYTYPE_UNIFIED>,
          flat<CU_MEMORYTYPE_HOST>, box<CU_MEMORYTYPE_HOST>})
      if (check(from, to, copy) != 0) return 1;
  }
  return arrays(other, current.context);
}

}  // namespace

int main() {
  CHECK(cuInit(0));
  OnDevice first, second;
  if (set_up(&first, 0) != 0 || set_up(&second, 1) != 0) return 1;
  if (copies(first, second) != 0 || copies(second, first) != 0) return 1;
  std::printf("servers_by_driver: right\n");
  return 0;
}
