// Textures and surfaces by the driver's values, which the application and its kernels know them by
// (docs/adr/0040-textures-keep-the-drivers-values.md). A value means something in one context; a
// driver uses it again when the object is gone. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

#include "client/object/array.h"
#include "client/object/context.h"

namespace fargpu::client {

class TextureTable {
 public:
  void add(const TextureRecord& record) {
    const std::lock_guard lock(mutex_);
    ids_[key(record)] = record.id;
  }
  // 0: no live object of this kind has the value in the context.
  uint64_t find(const Context* context, rpc::HandleKind kind, uint64_t value) const {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find({context, kind, value});
    return found == ids_.end() ? 0 : found->second;
  }
  void texobject_ended(const Object& object) { ended(static_cast<const TextureRecord&>(object)); }
  void surfobject_ended(const Object& object) { ended(static_cast<const TextureRecord&>(object)); }

 private:
  using Key = std::tuple<const Context*, rpc::HandleKind, uint64_t>;
  static Key key(const TextureRecord& record) {
    return {record.context, record.kind(), record.value};
  }
  void ended(const TextureRecord& record) {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(key(record));
    // The value may be that of a newer object by now.
    if (found != ids_.end() && found->second == record.id) ids_.erase(found);
  }

  mutable std::mutex mutex_;
  std::map<Key, uint64_t> ids_;  // guarded by mutex_
};

}  // namespace fargpu::client
