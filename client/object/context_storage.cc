#include "client/object/context_storage.h"

#include <mutex>
#include <vector>

#include "client/object/context.h"

namespace fargpu::client::interop {

ContextStorage& ContextStorage::get_instance() {
  // Never destroyed: the runtime asks until the very end of the process.
  static auto& storage = *new ContextStorage;
  return storage;
}

void ContextStorage::put(const Context* context, void* key, void* value, Destructor destructor) {
  std::unique_lock lock(mutex_);
  values_[{context, key}] = {value, destructor};
}

bool ContextStorage::erase(const Context* context, void* key) {
  std::unique_lock lock(mutex_);
  return values_.erase({context, key}) != 0;
}

bool ContextStorage::get(const Context* context, void* key, void** value) const {
  std::shared_lock lock(mutex_);
  const auto found = values_.find({context, key});
  if (found == values_.end()) return false;
  *value = found->second.value;
  return true;
}

void ContextStorage::context_ends(Context& context) {
  std::vector<std::pair<void*, Value>> gone;
  {
    std::unique_lock lock(mutex_);
    auto it = values_.lower_bound({&context, nullptr});
    while (it != values_.end() && it->first.first == &context) {
      gone.emplace_back(it->first.second, it->second);
      it = values_.erase(it);
    }
  }
  for (const auto& [key, value] : gone) {
    if (value.destructor != nullptr) value.destructor(context.handle(), key, value.value);
  }
}

}  // namespace fargpu::client::interop
