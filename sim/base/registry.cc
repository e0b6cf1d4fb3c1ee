#include "sim/base/registry.h"

#include <mutex>

namespace fargpu::sim {
namespace {

// Not a canonical user address, so that no valid pointer looks like a handle.
constexpr uint64_t kTag = uint64_t{0xF1} << 40;

}  // namespace

uint64_t Registry::add_record(ObjectRecord record) {
  std::unique_lock lock(mutex_);
  const uint64_t handle = kTag | (next_serial_++ << 8) | static_cast<uint64_t>(record.kind);
  records_.emplace(handle, std::move(record));
  return handle;
}

std::shared_ptr<void> Registry::find_object(ObjectKind kind, uint64_t handle) const {
  std::shared_lock lock(mutex_);
  auto it = records_.find(handle);
  if (it == records_.end() || it->second.kind != kind) return nullptr;
  return it->second.object;
}

std::shared_ptr<void> Registry::remove_object(ObjectKind kind, uint64_t handle) {
  std::unique_lock lock(mutex_);
  auto it = records_.find(handle);
  if (it == records_.end() || it->second.kind != kind) return nullptr;
  auto object = std::move(it->second.object);
  records_.erase(it);
  return object;
}

std::vector<std::shared_ptr<void>> Registry::remove_owned(uint64_t owner) {
  std::vector<std::shared_ptr<void>> removed;
  std::unique_lock lock(mutex_);
  for (auto it = records_.begin(); it != records_.end();) {
    if (it->second.owner != owner) {
      ++it;
      continue;
    }
    removed.push_back(std::move(it->second.object));
    it = records_.erase(it);
  }
  return removed;
}

}  // namespace fargpu::sim
