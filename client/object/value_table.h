// Executable graphs by the driver's values, where the application knows them by these: kernels get
// them (docs/adr/0049-graphs-that-kernels-launch-keep-the-drivers-values.md). A value means
// something in one session; a driver uses it again when the object is gone. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "common/rpc/handle_kind.h"

namespace fargpu::client {

class Session;

class ValueTable {
 public:
  // Whether the value cannot be taken for an id of ours.
  static bool is_distinct(uint64_t value) {
    return value != 0 && rpc::handle_kind(value) == rpc::HandleKind::kNone;
  }

  void add(uint64_t value, const Session* session, uint64_t id) {
    const std::lock_guard lock(mutex_);
    ids_[value][session] = id;
  }
  // 0: nothing has the value. Of several sessions' objects that of `preferred`, or any.
  uint64_t find(uint64_t value, const Session* preferred) const {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(value);
    if (found == ids_.end()) return 0;
    const auto own = found->second.find(preferred);
    return own != found->second.end() ? own->second : found->second.begin()->second;
  }
  void erase(uint64_t value, const Session* session, uint64_t id) {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(value);
    if (found == ids_.end()) return;
    const auto own = found->second.find(session);
    // The value may be that of a newer object by now.
    if (own == found->second.end() || own->second != id) return;
    found->second.erase(own);
    if (found->second.empty()) ids_.erase(found);
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::map<const Session*, uint64_t>> ids_;  // guarded by mutex_
};

}  // namespace fargpu::client
