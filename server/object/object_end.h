// The notification of a session's parts when an object or a context ends. The notified parts:
// `server` of each kind in schema/api/types.yml, from which generated/server/object_ends.h is made.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace fargpu::server {

// An object that is in no table any more.
struct ObjectEnd {
  uint64_t id = 0;
  void* handle = nullptr;  // the driver's, which may be gone
  uint16_t context = 0;    // 0: it lived in none
};

// A context that is idle, or has failed, and goes. It is current during the notification, and its
// objects have ended.
struct ContextEnd {
  uint16_t id = 0;
  // Made on a helper thread with the context current, just before the driver ends it: these may
  // wait for work of other contexts.
  std::vector<std::function<void()>> withdrawals{};
  // Then, on the executor's thread.
  std::vector<std::function<void()>> afterwards{};
};

}  // namespace fargpu::server
