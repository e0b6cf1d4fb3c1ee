// The table of all handles of a session: typed id -> record.
//
// Serials are never used again, so a destroyed handle is recognised for ever. find() is one relaxed
// load and one acquire load, without a lock; the other functions take a short lock. Any thread may
// call anything. A record outlives its erase() by at least kGraveyard further erasures: a thread
// that races with the destruction of its own handle reads old data, never freed memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "client/object.h"

namespace fargpu::client {

class HandleTable {
 public:
  HandleTable() = default;
  ~HandleTable();
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // A new id, not yet live. 0 when all 2^29 serials are used up.
  uint64_t reserve(rpc::HandleKind kind);
  // Makes object->id (from reserve()) live. Returns the record, or nullptr when the id is 0.
  Object* publish(std::unique_ptr<Object> object);
  // The live record of exactly this id and kind, else nullptr. `id` may be any 64-bit value.
  Object* find(rpc::HandleKind kind, uint64_t id) const;
  bool erase(uint64_t id);
  // Erases every record for which `gone` is true; returns how many.
  size_t erase_if(const std::function<bool(const Object&)>& gone);
  void for_each(const std::function<void(Object&)>& visit) const;

 private:
  static constexpr size_t kChunkSlots = 8192;
  static constexpr size_t kChunks = 1 << 16;
  static constexpr size_t kGraveyard = 4096;
  struct Chunk {
    std::array<std::atomic<Object*>, kChunkSlots> slots{};
  };
  std::atomic<Object*>* slot(uint64_t serial) const;
  void bury(std::unique_ptr<Object> object);

  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
  std::atomic<uint64_t> next_serial_{1};
  mutable std::mutex mutex_;  // chunk creation, erasure, graveyard
  std::deque<std::unique_ptr<Object>> graveyard_;
};

}  // namespace fargpu::client
