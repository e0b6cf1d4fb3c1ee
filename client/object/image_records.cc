#include "client/object/image_records.h"

namespace fargpu::client {
namespace {

bool is_over(const ContextAttributes& entry) {
  return !entry.context->usable() || entry.context->unique_id.load() != entry.unique_id.load();
}

}  // namespace

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

ContextAttributes* Function::find(ContextAttributes* first, const Context& context) {
  const uint64_t unique_id = context.unique_id.load();
  for (ContextAttributes* each = first; each != nullptr; each = each->next.get()) {
    if (each->unique_id.load(std::memory_order_acquire) == unique_id) return each;
  }
  return nullptr;
}

ContextAttributes* Function::enter(const Context& context, const FunctionAttributes& of_kernel) {
  ContextAttributes* own = by_context.load();
  while (own != nullptr && !is_over(*own)) own = own->next.get();
  const bool is_new = own == nullptr;
  if (is_new) {
    own = new ContextAttributes;
    own->next.reset(by_context.load());
  }
  own->context = &context;
  own->overridden = {};
  for (size_t i = 0; i < kFunctionAttributes; ++i) own->values[i].store(of_kernel[i].load());
  own->unique_id.store(context.unique_id.load(), std::memory_order_release);
  if (is_new) by_context.store(own, std::memory_order_release);
  return own;
}

void Function::set_on_device(int device, CUfunction_attribute attribute, int value) {
  const std::lock_guard lock(mutex);
  occupancy.clear();
  admitted = {};
  FunctionAttributes* const own = on_device(device);
  if (own == nullptr || static_cast<size_t>(attribute) >= kFunctionAttributes) return;
  (*own)[attribute].store(value, std::memory_order_relaxed);
  for (auto* each = by_context.load(); each != nullptr; each = each->next.get()) {
    if (each->context->device == device && !each->overridden[attribute])
      each->values[attribute].store(value, std::memory_order_relaxed);
  }
}

void Function::set_in_context(const Context& context, CUfunction_attribute attribute, int value) {
  const std::lock_guard lock(mutex);
  occupancy.clear();
  admitted = {};
  const FunctionAttributes* const of_kernel = on_device(context.device);
  if (of_kernel == nullptr || static_cast<size_t>(attribute) >= kFunctionAttributes) return;
  ContextAttributes* own = find(by_context.load(), context);
  if (own == nullptr) own = enter(context, *of_kernel);
  own->values[attribute].store(value, std::memory_order_relaxed);
  own->overridden[attribute] = true;
}

Function::~Function() {
  for (auto& place : by_device) delete place.load(std::memory_order_relaxed);
  delete by_context.load();
}

}  // namespace fargpu::client
