#include "server/worker/probe.h"

#include <cuda.h>
#include <fmt/core.h>

#include "generated/server/driver_table.h"
#include "schema/support/cuda_rules.h"
#include "server/worker/driver_library.h"
#include "server/worker/welcome.h"

namespace fargpu::server {
namespace {

// The range belongs to a context; making one here, once, spares every session from it.
void ask_priorities(const DriverTable& driver, CUdevice device, PriorityRange* range) {
  CUcontext context = nullptr;
  if (driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return;
  if (driver.cuCtxSetCurrent(context) == CUDA_SUCCESS &&
      driver.cuCtxGetStreamPriorityRange != nullptr) {
    driver.cuCtxGetStreamPriorityRange(&range->least, &range->greatest);
  }
  driver.cuDevicePrimaryCtxRelease_v2(device);
}

Result<Unit> ask(const DriverTable& driver, int ordinal) {
  CUdevice device = 0;
  char name[256] = {};
  CUuuid uuid = {};
  size_t bytes = 0;
  CUresult result = driver.cuDeviceGet(&device, ordinal);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetName(name, sizeof name - 1, device);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetUuid_v2(&uuid, device);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceTotalMem_v2(&bytes, device);
  if (result != CUDA_SUCCESS) {
    return Status(StatusCode::kDriver, fmt::format("the driver does not describe GPU {}: {}",
                                                   ordinal, error_text(driver, result)));
  }
  const auto* raw = reinterpret_cast<const unsigned char(*)[16]>(uuid.bytes);
  Unit unit{uuid_text(*raw), name, bytes, {}};
  if (schema::is_instance(unit.name)) unit.uuid = "MIG" + unit.uuid.substr(3);
  ask_priorities(driver, device, &unit.priorities);
  return unit;
}

}  // namespace

Result<Inventory> take_inventory(const std::string& wanted) {
  FARGPU_ASSIGN_OR_RETURN(const std::string path, find_driver(wanted));
  FARGPU_ASSIGN_OR_RETURN(const DriverLibrary driver, DriverLibrary::open(path));
  int count = 0;
  if (const CUresult result = driver.table().cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
    return Status(StatusCode::kDriver, "cuDeviceGetCount: " + error_text(driver.table(), result));
  }
  Inventory inventory{path, driver.version(), {}};
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    FARGPU_ASSIGN_OR_RETURN(Unit unit, ask(driver.table(), ordinal));
    inventory.units.push_back(std::move(unit));
  }
  return inventory;
}

}  // namespace fargpu::server
