#include "sim/driver/api.h"

#include "common/base/log.h"
#include "sim/driver/array.h"
#include "sim/driver/event.h"
#include "sim/driver/green_context.h"
#include "sim/driver/module.h"

namespace fargpu::sim {

CUresult unexpected(const std::exception& error) {
  log::error("the simulated driver failed: {}", error.what());
  return CUDA_ERROR_UNKNOWN;
}

CUresult current_context(Driver& driver, std::shared_ptr<Context>* context) {
  const auto& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *context = driver.find_context(stack.back());
  return *context && (*context)->alive() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult context_for(Driver& driver, const void* handle, std::shared_ptr<Context>* context) {
  const CUresult result = current_context(driver, context);
  if (result == CUDA_SUCCESS || handle == nullptr) return result;
  const Registry& registry = driver.registry();
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

CUresult find_stream(const std::shared_ptr<Context>& current, CUstream handle,
                     std::shared_ptr<Context>* owner, std::shared_ptr<Stream>* stream) {
  *owner = current;
  if (handle == nullptr && PerThreadDefault::active()) handle = CU_STREAM_PER_THREAD;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    const auto green = current_green();
    *stream = green ? green->default_stream : current->legacy_stream();
  } else if (handle == CU_STREAM_PER_THREAD) {
    if (current_green()) return CUDA_ERROR_INVALID_HANDLE;
    *stream = current->per_thread_stream();
  } else {
    *stream = Driver::get().registry().find<Stream>(handle);
    if (!*stream) return CUDA_ERROR_INVALID_HANDLE;
    *owner = (*stream)->context.lock();
    if (!*owner || !(*owner)->alive()) return CUDA_ERROR_INVALID_HANDLE;
    if ((*stream)->green && !(*stream)->green->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<GreenContext> current_green() {
  const auto& stack = context_stack();
  return stack.empty() ? nullptr : Driver::get().registry().find<GreenContext>(stack.back());
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
  Device* device = Driver::get().device(allocation.device);
  const auto primary = device != nullptr ? device->primary() : nullptr;
  if (primary && primary.get() != &context) primary->quiesce();
}

}  // namespace fargpu::sim
