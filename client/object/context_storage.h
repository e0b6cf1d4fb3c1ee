// Context-local storage: values that NVIDIA's runtime attaches to contexts, under keys of its own,
// with destructors.
//
// get() is on hot paths (some thousand calls per second): a shared lock and one look-up. Before a
// context's contents are destroyed, its values are removed and their destructors called
// (client/manual/context_end.h). Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <shared_mutex>
#include <utility>

namespace fargpu::client {
struct Context;
}

namespace fargpu::client::interop {

class ContextStorage {
 public:
  using Destructor = void (*)(CUcontext context, void* key, void* value);

  static ContextStorage& get_instance();

  void put(const Context* context, void* key, void* value, Destructor destructor);
  bool erase(const Context* context, void* key);
  bool get(const Context* context, void* key, void** value) const;
  // The context's contents are about to go: takes its values out and calls their destructors, which
  // may use the context.
  void context_ends(Context& context);

 private:
  struct Value {
    void* value;
    Destructor destructor;
  };
  mutable std::shared_mutex mutex_;
  std::map<std::pair<const Context*, void*>, Value> values_;
};

}  // namespace fargpu::client::interop
