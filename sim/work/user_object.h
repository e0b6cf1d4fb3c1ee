// User objects: objects that graphs keep alive for the program, with a destructor that runs on a
// thread of the driver after the last reference. Thread safe.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "sim/base/registry.h"

namespace fargpu::sim {

class UserObject : public std::enable_shared_from_this<UserObject> {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kUserObject;
  UserObject(void* data, CUhostFn destroy, unsigned references)
      : data_(data), destroy_(destroy), references_(references) {}

  void set_handle(uint64_t handle) { handle_ = handle; }
  void retain(uint64_t count) { references_ += count; }
  // The last one queues the destructor.
  void release(uint64_t count);
  uint64_t references() const { return references_.load(); }

 private:
  void* const data_;
  const CUhostFn destroy_;
  uint64_t handle_ = 0;
  std::atomic<uint64_t> references_;
  std::atomic<bool> ended_{false};  // references that come later change nothing
};

// References of a graph. A copy has references of its own.
class ObjectReferences {
 public:
  ObjectReferences() = default;
  ObjectReferences(const ObjectReferences& other);
  ObjectReferences& operator=(const ObjectReferences& other);
  ~ObjectReferences();

  // Takes over references that were made for it.
  void add(const std::shared_ptr<UserObject>& object, uint64_t count) { counts_[object] += count; }
  // false: it has fewer.
  bool release(const std::shared_ptr<UserObject>& object, uint64_t count);

 private:
  std::map<std::shared_ptr<UserObject>, uint64_t> counts_;
};

}  // namespace fargpu::sim
