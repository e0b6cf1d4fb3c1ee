// The session's objects: client-made typed ids (common/rpc/handle_kind.h) -> driver handles.
//
// An object belongs to a context, and perhaps to a parent (a function to its module), and goes with
// it. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/rpc/handle_kind.h"

namespace fargpu::server {

class HandleTable {
 public:
  struct Entry {
    void* handle = nullptr;
    uint64_t parent = 0;   // id; 0: none
    uint16_t context = 0;  // 0: none
    uint16_t device = 0;   // of a memory pool: where its memory lies
  };

  // More objects than this in one session are refused: OUT_OF_MEMORY. Twice what a client's table
  // holds: some objects are the worker's own notion.
  static constexpr size_t kMaxObjects = size_t{2} << rpc::kSlotBits;

  explicit HandleTable(size_t max_objects = kMaxObjects) : max_objects_(max_objects) {}
  // `hook` hears of every object that is forgotten, also of those that go with another.
  void when_removed(std::function<void(uint64_t id)> hook) { removed_ = std::move(hook); }

  // INVALID_HANDLE for an unknown id and for one of another kind.
  CUresult find(rpc::HandleKind kind, uint64_t id, void** handle) const;
  const Entry* find(uint64_t id) const;
  // INVALID_VALUE when the id is in use, malformed or of another kind; OUT_OF_MEMORY when the table
  // is full.
  CUresult add(rpc::HandleKind kind, uint64_t id, const Entry& entry);
  // The object, which is there, has another driver handle from now on. Not for streams.
  void replace(uint64_t id, void* handle);
  // Forgets the object and its children.
  void remove(uint64_t id);
  void remove_context(uint16_t context);

  // The streams of a context, by driver handle; valid until the next change.
  std::span<void* const> streams(uint16_t context) const;
  size_t size() const { return entries_.size(); }

 private:
  const size_t max_objects_;
  std::function<void(uint64_t)> removed_;
  std::unordered_map<uint64_t, Entry> entries_;
  std::unordered_multimap<uint64_t, uint64_t> children_;
  // by context: asked for at every synchronisation
  std::unordered_map<uint16_t, std::vector<void*>> streams_;
};

}  // namespace fargpu::server
