// The table of all handles of the process: typed id -> record.
//
// An id names a slot and a generation of it (common/rpc/handle_kind.h). A slot is used again, for
// the next object that is made; an id never: a destroyed handle is recognised for ever. A slot that
// has had all its generations rests for good. The table is as large as the most objects that lived
// at once.
//
// find() is three loads, without a lock, and touches a record only when the id is live; the other
// functions take a short lock. Any thread may call anything. A record outlives its erase() by at
// least kGraveyard further erasures: a thread that races with the destruction of its own handle
// reads old data, never freed memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "client/object/object.h"

namespace fargpu::client {

class HandleTable {
 public:
  // Small ones are for tests.
  struct Limits {
    uint32_t slots = 1u << rpc::kSlotBits;  // so many objects may live at once
    uint32_t generations = 1u << rpc::kGenerationBits;
  };

  HandleTable() : HandleTable(Limits()) {}
  explicit HandleTable(Limits limits) : limits_(limits) {}
  ~HandleTable();
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // A new id, not yet live. 0 when there is no slot for it. `session`: the number that it gets.
  uint64_t reserve(rpc::HandleKind kind, unsigned session = 0);
  // An id from reserve() that does not become live.
  void give_back(uint64_t id);
  // Makes object->id (from reserve()) live. Returns the record, or nullptr when the id is 0.
  Object* publish(std::unique_ptr<Object> object);
  // The live record of exactly this id and kind, else nullptr. `id` may be any 64-bit value.
  Object* find(rpc::HandleKind kind, uint64_t id) const;
  bool erase(uint64_t id);
  // As erase(), but the record goes to the caller; nullptr: not live.
  std::unique_ptr<Object> take(uint64_t id);
  // Takes every record for which `gone` is true.
  std::vector<std::unique_ptr<Object>> take_if(const std::function<bool(const Object&)>& gone);
  // A record that was taken, and that other threads may have found before: it is freed as one that
  // was erased.
  void bury(std::unique_ptr<Object> object);
  // In no particular order, without a lock: objects that are made or erased meanwhile may be left
  // out.
  void for_each(const std::function<void(Object&)>& visit) const;

 private:
  static constexpr uint32_t kChunkSlots = 8192;
  static constexpr uint32_t kChunks = (1u << rpc::kSlotBits) / kChunkSlots;
  static constexpr size_t kGraveyard = 4096;
  // A reader takes the object only when the id is the same before and after it.
  struct alignas(16) Slot {
    std::atomic<uint64_t> id{0};  // 0: not live
    std::atomic<Object*> object{nullptr};
  };
  // Guarded by mutex_.
  struct Reuse {
    uint32_t generation = 0;  // of the next object here
    uint32_t next_free = 0;   // slot; 0: the last one
  };
  struct Chunk {
    std::array<Slot, kChunkSlots> slots;
    std::array<Reuse, kChunkSlots> reuse;
  };
  Slot* slot(uint64_t id) const;  // nullptr: there is none
  // These need the lock.
  Reuse& reuse(uint32_t slot);
  void free_slot(uint64_t id);
  std::unique_ptr<Object> remove(Slot& slot);
  void put_to_rest(std::unique_ptr<Object> object);

  const Limits limits_;
  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
  mutable std::mutex mutex_;             // everything but find()
  std::atomic<uint32_t> used_slots_{1};  // slot 0 is none; written under the lock
  uint32_t first_free_ = 0;              // slot; 0: none
  std::deque<std::unique_ptr<Object>> graveyard_;
};

}  // namespace fargpu::client
