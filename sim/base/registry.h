// All live objects behind CUDA handles. A handle is a number made here, never an address, and never
// used twice: a stale or made-up handle is not found, and a handle of one kind is not found as
// another.
//
// Thread safe. An object lives as long as a shared_ptr from find() exists, also after it left the
// registry.
#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace fargpu::sim {

enum class ObjectKind : uint8_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kPool,
  kPhysicalMemory,
  kLinkState,
  kPrimaryContext,
  kGraph,
  kGraphNode,
  kGraphExec,
  kUserObject,
  kArray,
  kMipmappedArray,
  kTexture,
  kSurface,
  kGreenContext,
  kResourceDescription,
  kNotification
};

class Registry {
 public:
  // `owner`: id of the context that the object dies with; 0: none.
  template <typename T>
  uint64_t add(std::shared_ptr<T> object, uint64_t owner) {
    return add_record(ObjectRecord{T::kKind, owner, std::move(object)});
  }
  // nullptr: no such object of this kind.
  template <typename T, typename Handle>
  std::shared_ptr<T> find(Handle handle) const {
    return std::static_pointer_cast<T>(find_object(T::kKind, number(handle)));
  }
  // Takes the object out; nullptr when it was not there (only one of several callers gets it).
  template <typename T, typename Handle>
  std::shared_ptr<T> remove(Handle handle) {
    return std::static_pointer_cast<T>(remove_object(T::kKind, number(handle)));
  }
  // Every object of this kind.
  template <typename T>
  std::vector<std::shared_ptr<T>> all() const {
    std::vector<std::shared_ptr<T>> found;
    std::shared_lock lock(mutex_);
    for (const auto& [handle, record] : records_)
      if (record.kind == T::kKind) found.push_back(std::static_pointer_cast<T>(record.object));
    return found;
  }
  // Takes out everything that belongs to a context.
  std::vector<std::shared_ptr<void>> remove_owned(uint64_t owner);

 private:
  struct ObjectRecord {
    ObjectKind kind;
    uint64_t owner;
    std::shared_ptr<void> object;
  };
  static uint64_t number(uint64_t handle) { return handle; }
  static uint64_t number(const void* handle) { return reinterpret_cast<uint64_t>(handle); }
  uint64_t add_record(ObjectRecord record);
  std::shared_ptr<void> find_object(ObjectKind kind, uint64_t handle) const;
  std::shared_ptr<void> remove_object(ObjectKind kind, uint64_t handle);

  mutable std::shared_mutex mutex_;
  std::unordered_map<uint64_t, ObjectRecord> records_;
  uint64_t next_serial_ = 1;
};

}  // namespace fargpu::sim
