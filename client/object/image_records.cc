#include "client/object/image_records.h"

namespace fargpu::client {

FunctionAttributes* Function::remember(int device, const int* values) {
  if (device < 0 || static_cast<size_t>(device) >= kMaxDevices) return nullptr;
  auto fresh = std::make_unique<FunctionAttributes>();
  for (size_t i = 0; i < kFunctionAttributes; ++i)
    (*fresh)[i].store(values[i], std::memory_order_relaxed);
  FunctionAttributes* none = nullptr;
  auto& place = by_device[static_cast<size_t>(device)];
  if (place.compare_exchange_strong(none, fresh.get(), std::memory_order_acq_rel))
    return fresh.release();
  return none;
}

Function::~Function() {
  for (auto& place : by_device) delete place.load(std::memory_order_relaxed);
}

}  // namespace fargpu::client
