#include "server/worker/probe.h"

#include <cuda.h>
#include <fmt/core.h>

#include <optional>
#include <vector>

#include "generated/server/driver_table.h"
#include "schema/support/cuda_rules.h"
#include "server/worker/driver_library.h"
#include "server/worker/second_process.h"
#include "server/worker/welcome.h"

namespace fargpu::server {
namespace {

// The primary contexts of the GPUs, while it lives. Some facts belong to a context; making one
// here, once, spares every session from it.
class PrimaryContexts {
 public:
  explicit PrimaryContexts(const DriverTable& driver) : driver_(driver) {}
  PrimaryContexts(const PrimaryContexts&) = delete;
  PrimaryContexts& operator=(const PrimaryContexts&) = delete;
  ~PrimaryContexts() {
    for (const CUdevice device : devices_) driver_.cuDevicePrimaryCtxRelease_v2(device);
  }
  void make(int ordinal) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    if (driver_.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
        driver_.cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS)
      devices_.push_back(device);
    contexts_.push_back(context);
  }
  // False: there is none.
  bool enter(int ordinal) const {
    CUcontext const context = contexts_[static_cast<size_t>(ordinal)];
    return context != nullptr && driver_.cuCtxSetCurrent(context) == CUDA_SUCCESS;
  }
  PriorityRange priorities(int ordinal) const {
    PriorityRange range;
    if (driver_.cuCtxGetStreamPriorityRange != nullptr && enter(ordinal))
      driver_.cuCtxGetStreamPriorityRange(&range.least, &range.greatest);
    return range;
  }
  size_t free_bytes(int ordinal) const {
    size_t free = 0, total = 0;
    return enter(ordinal) && driver_.cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS ? free : 0;
  }

 private:
  const DriverTable& driver_;
  std::vector<CUdevice> devices_;
  std::vector<CUcontext> contexts_;  // by ordinal; nullptr: it could not be made
};

// What is not plausible comes from other programs that took or gave back memory meanwhile.
void measure_contexts(const PrimaryContexts& contexts, SecondProcess& second,
                      std::vector<Unit>* units) {
  std::vector<size_t> before;
  for (size_t i = 0; i < units->size(); ++i)
    before.push_back(contexts.free_bytes(static_cast<int>(i)));
  if (!second.make_contexts()) return;
  for (size_t i = 0; i < units->size(); ++i) {
    Unit& unit = (*units)[i];
    const size_t after = contexts.free_bytes(static_cast<int>(i));
    if (after < before[i] && before[i] - after <= unit.total_bytes / 4)
      unit.context_bytes = before[i] - after;
  }
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
  return unit;
}

}  // namespace

Result<Inventory> take_inventory(const std::string& wanted, bool measures_contexts) {
  FARGPU_ASSIGN_OR_RETURN(const std::string path, find_driver(wanted));
  std::optional<SecondProcess> second;
  if (measures_contexts) second.emplace(path);
  FARGPU_ASSIGN_OR_RETURN(const DriverLibrary driver, DriverLibrary::open(path));
  int count = 0;
  if (const CUresult result = driver.table().cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
    return Status(StatusCode::kDriver, "cuDeviceGetCount: " + error_text(driver.table(), result));
  }
  Inventory inventory{path, driver.version(), {}};
  PrimaryContexts contexts(driver.table());
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    FARGPU_ASSIGN_OR_RETURN(Unit unit, ask(driver.table(), ordinal));
    contexts.make(ordinal);
    unit.priorities = contexts.priorities(ordinal);
    inventory.units.push_back(std::move(unit));
  }
  if (second) measure_contexts(contexts, *second, &inventory.units);
  return inventory;
}

}  // namespace fargpu::server
