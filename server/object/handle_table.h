// The session's objects: client-made typed ids (common/rpc/handle_kind.h) -> driver handles.
//
// An object ends alone, with its parent, or with its context, according to its kind
// (generated/rpc/handle_rules.h). One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/rpc/handle_kind.h"
#include "server/object/object_end.h"

namespace fargpu::server {

class HandleTable {
 public:
  struct Object {
    void* handle = nullptr;
    uint64_t parent = 0;   // id; 0: none
    uint16_t context = 0;  // the context that it lives in; 0: none
    uint16_t device = 0;   // of a memory pool: where its memory lies
  };

  // More objects than this in one session are refused: OUT_OF_MEMORY. An event takes about 300
  // bytes of host memory.
  static constexpr size_t kMaxObjects = size_t{1} << 19;

  explicit HandleTable(size_t max_objects = kMaxObjects) : max_objects_(max_objects) {}
  // `tell` is called for every object that ends, also with its parent: when the table does not know
  // it any more.
  void when_ended(std::function<void(const ObjectEnd&)> tell) { tell_ = std::move(tell); }

  // INVALID_HANDLE for an unknown id and for one of another kind.
  CUresult find(rpc::HandleKind kind, uint64_t id, void** handle) const;
  const Object* find(uint64_t id) const;
  // The context that the object lives in; 0: none, or there is no such object.
  uint16_t context_of(uint64_t id) const {
    const Object* const object = find(id);
    return object == nullptr ? uint16_t{0} : object->context;
  }
  // INVALID_VALUE when the id is in use, malformed or of another kind, or the parent cannot be one
  // or is not there; OUT_OF_MEMORY when the table is full. `object.context`: the one in which it
  // was made, also for a kind that outlives it.
  CUresult add(rpc::HandleKind kind, uint64_t id, const Object& object);
  // The object, which is there, has another driver handle from now on. Not for streams.
  void replace(uint64_t id, void* handle);
  // The object ends, and its children.
  void remove(uint64_t id);
  // Objects that live in the context end.
  void remove_context(uint16_t context);

  // The streams of a context, by driver handle; valid until the next change.
  std::span<void* const> streams(uint16_t context) const;
  size_t size() const { return objects_.size(); }

 private:
  const size_t max_objects_;
  std::function<void(const ObjectEnd&)> tell_;
  std::unordered_map<uint64_t, Object> objects_;
  std::unordered_multimap<uint64_t, uint64_t> children_;
  // by context: asked for at every synchronisation
  std::unordered_map<uint16_t, std::vector<void*>> streams_;
};

}  // namespace fargpu::server
