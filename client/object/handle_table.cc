#include "client/object/handle_table.h"

#include <utility>

namespace fargpu::client {

HandleTable::~HandleTable() {
  for (auto& entry : chunks_) {
    Chunk* chunk = entry.load(std::memory_order_relaxed);
    if (chunk == nullptr) continue;
    for (Slot& slot : chunk->slots) delete slot.object.load(std::memory_order_relaxed);
    delete chunk;
  }
}

HandleTable::Slot* HandleTable::slot(uint64_t id) const {
  const uint32_t index = rpc::handle_slot(id);
  Chunk* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);  // pairs: reserve()
  return chunk == nullptr ? nullptr : &chunk->slots[index % kChunkSlots];
}

HandleTable::Reuse& HandleTable::reuse(uint32_t slot) {
  return chunks_[slot / kChunkSlots].load(std::memory_order_relaxed)->reuse[slot % kChunkSlots];
}

uint64_t HandleTable::reserve(rpc::HandleKind kind, unsigned session) {
  std::lock_guard lock(mutex_);
  uint32_t index = first_free_;
  if (index != 0) {
    first_free_ = reuse(index).next_free;
  } else {
    index = used_slots_.load(std::memory_order_relaxed);
    if (index >= limits_.slots) return 0;
    auto& chunk = chunks_[index / kChunkSlots];
    if (chunk.load(std::memory_order_relaxed) == nullptr)
      chunk.store(new Chunk, std::memory_order_release);      // pairs with slot()
    used_slots_.store(index + 1, std::memory_order_release);  // pairs with for_each()
  }
  return rpc::make_handle(kind, rpc::make_serial(index, reuse(index).generation), session);
}

void HandleTable::give_back(uint64_t id) {
  if (id == 0) return;
  std::lock_guard lock(mutex_);
  free_slot(id);
}

void HandleTable::free_slot(uint64_t id) {
  const uint32_t index = rpc::handle_slot(id);
  Reuse& next = reuse(index);
  if (++next.generation >= limits_.generations) return;
  next.next_free = std::exchange(first_free_, index);
}

Object* HandleTable::publish(std::unique_ptr<Object> object) {
  if (object->id == 0) return nullptr;
  std::lock_guard lock(mutex_);
  Slot* const place = slot(object->id);
  Object* const raw = object.release();
  place->object.store(raw, std::memory_order_release);  // pairs with find()
  place->id.store(raw->id, std::memory_order_release);  // pairs with find()
  return raw;
}

Object* HandleTable::find(rpc::HandleKind kind, uint64_t id) const {
  if (rpc::handle_kind(id) != kind) return nullptr;
  const Slot* const place = slot(id);
  if (place == nullptr || place->id.load(std::memory_order_acquire) != id) return nullptr;
  Object* const object = place->object.load(std::memory_order_acquire);
  // The slot may have got another object in between; then its id was 0 before that.
  return place->id.load(std::memory_order_relaxed) == id ? object : nullptr;
}

std::unique_ptr<Object> HandleTable::remove(Slot& slot) {
  const uint64_t id = slot.id.exchange(0, std::memory_order_acq_rel);
  std::unique_ptr<Object> object(slot.object.exchange(nullptr, std::memory_order_acq_rel));
  free_slot(id);
  return object;
}

std::unique_ptr<Object> HandleTable::take(uint64_t id) {
  std::lock_guard lock(mutex_);
  if (find(rpc::handle_kind(id), id) == nullptr) return nullptr;
  return remove(*slot(id));
}

bool HandleTable::erase(uint64_t id) {
  std::lock_guard lock(mutex_);
  if (find(rpc::handle_kind(id), id) == nullptr) return false;
  put_to_rest(remove(*slot(id)));
  return true;
}

std::vector<std::unique_ptr<Object>> HandleTable::take_if(
    const std::function<bool(const Object&)>& gone) {
  std::vector<std::unique_ptr<Object>> taken;
  std::lock_guard lock(mutex_);
  for (uint32_t index = 1; index < used_slots_; ++index) {
    Chunk* const chunk = chunks_[index / kChunkSlots].load(std::memory_order_relaxed);
    Slot& place = chunk->slots[index % kChunkSlots];
    const Object* const object = place.object.load(std::memory_order_relaxed);
    if (object != nullptr && gone(*object)) taken.push_back(remove(place));
  }
  return taken;
}

void HandleTable::for_each(const std::function<void(Object&)>& visit) const {
  const uint32_t end = used_slots_.load(std::memory_order_acquire);  // pairs with reserve()
  for (uint32_t index = 1; index < end; ++index) {
    const Chunk* const chunk = chunks_[index / kChunkSlots].load(std::memory_order_relaxed);
    const Slot& place = chunk->slots[index % kChunkSlots];
    if (Object* object = place.object.load(std::memory_order_acquire)) visit(*object);
  }
}

void HandleTable::bury(std::unique_ptr<Object> object) {
  std::lock_guard lock(mutex_);
  put_to_rest(std::move(object));
}

void HandleTable::put_to_rest(std::unique_ptr<Object> object) {
  graveyard_.push_back(std::move(object));
  if (graveyard_.size() > kGraveyard) graveyard_.pop_front();
}

}  // namespace fargpu::client
