#include "sim/work/conditional_value.h"

#include <map>

namespace fargpu::sim {
namespace {

// By handle. Never destroyed: values may end while the process exits.
std::map<uint64_t, std::weak_ptr<ConditionalValue>>& values() {
  static auto* map = new std::map<uint64_t, std::weak_ptr<ConditionalValue>>;
  return *map;
}

}  // namespace

std::shared_ptr<ConditionalValue> ConditionalValue::make(std::shared_ptr<Context> context,
                                                         unsigned first, bool assign) {
  std::erase_if(values(), [](const auto& entry) { return entry.second.expired(); });
  const uint64_t address = context->memory().allocate(sizeof(uint32_t));
  if (address == 0) return nullptr;
  auto made = std::make_shared<ConditionalValue>(std::move(context), address, first, assign);
  values()[address] = made;
  return made;
}

std::shared_ptr<ConditionalValue> ConditionalValue::find(uint64_t handle) {
  const auto found = values().find(handle);
  return found == values().end() ? nullptr : found->second.lock();
}

ConditionalValue::ConditionalValue(std::shared_ptr<Context> context, uint64_t handle,
                                   unsigned first, bool assign)
    : context(std::move(context)),
      handle(handle),
      memory_(this->context->shared_memory()),
      first_(first),
      assign_(assign) {
  word().store(first);
}

ConditionalValue::~ConditionalValue() { memory_->release(handle); }

}  // namespace fargpu::sim
