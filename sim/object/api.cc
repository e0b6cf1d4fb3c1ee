#include "sim/object/api.h"

#include "common/base/log.h"
#include "sim/context/event.h"
#include "sim/context/primary_context.h"
#include "sim/object/array.h"
#include "sim/object/module.h"

namespace fargpu::sim {

CUresult unexpected(const std::exception& error) {
  log::error("the simulated driver failed: {}", error.what());
  return CUDA_ERROR_UNKNOWN;
}

CUresult context_for(const void* handle, std::shared_ptr<Context>* context) {
  const CUresult result = current_context(context);
  if (result == CUDA_SUCCESS || handle == nullptr) return result;
  const Registry& registry = Driver::get().registry();
  if (const auto stream = registry.find<Stream>(handle)) {
    *context = stream->context.lock();
  } else if (const auto event = registry.find<Event>(handle)) {
    *context = event->context.lock();
  } else if (const auto module = registry.find<Module>(handle)) {
    *context = module->context.lock();
  } else if (const auto function = registry.find<Function>(handle)) {
    const auto owner = function->module.lock();
    *context = owner ? owner->context.lock() : nullptr;
  } else if (const auto array = registry.find<Array>(handle)) {
    *context = array->context.lock();
  } else if (const auto mipmap = registry.find<MipmappedArray>(handle)) {
    *context = mipmap->context.lock();
  }
  return *context && (*context)->alive() ? CUDA_SUCCESS : result;
}

Allocation owned_by(Context& context) {
  Allocation allocation;
  allocation.device = context.device().ordinal();
  allocation.context = context.id();
  allocation.context_handle = reinterpret_cast<uint64_t>(context.handle());
  return allocation;
}

void quiesce(Context& context, const Allocation& allocation) {
  context.quiesce();
  const Device* const device = Driver::get().device(allocation.device);
  const auto primary = device != nullptr ? PrimaryContext::of(*device).get() : nullptr;
  if (primary && primary.get() != &context) primary->quiesce();
}

}  // namespace fargpu::sim
