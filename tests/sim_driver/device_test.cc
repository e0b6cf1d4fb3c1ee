#include <cstring>

#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

TEST(DeviceTest, EnumerationAndIdentity) {
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuInit(1));
  OK(cuInit(0));
  int count = 0, version = 0;
  OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 2);
  OK(cuDriverGetVersion(&version));
  EXPECT_EQ(version, 13000);
  CUdevice device = -1;
  OK(cuDeviceGet(&device, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceGet(nullptr, 0));
  CUuuid first, second;
  OK(cuDeviceGetUuid(&first, 0));
  OK(cuDeviceGetUuid(&second, 1));
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
  size_t bytes = 0;
  OK(cuDeviceTotalMem(&bytes, 0));
  EXPECT_EQ(bytes, kMemory);
  char name[64], bus[32];
  OK(cuDeviceGetName(name, sizeof name, 0));
  EXPECT_STREQ(name, "fargpu simulated GPU (sm_90)");
  OK(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceGetPCIBusId(bus, 5, 1));
  device = -1;
  OK(cuDeviceGetByPCIBusId(&device, bus));
  EXPECT_EQ(device, 1);
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&device, "0000:7f:00.0"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceGetByPCIBusId(&device, "nonsense"));
}

TEST(DeviceTest, UnknownDevicesAreRefusedEverywhere) {
  OK(cuInit(0));
  int value = 0;
  size_t bytes = 0;
  CUcontext context = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE,
            cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem(&bytes, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&context, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate(&context, nullptr, 0, 2));
}

TEST(DeviceTest, NamesOfErrors) {
  const char* text = nullptr;
  OK(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "an illegal memory access was encountered");
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(static_cast<CUresult>(4711), &text));
  EXPECT_EQ(text, nullptr);
}

}  // namespace
}  // namespace fargpu::sim_test
