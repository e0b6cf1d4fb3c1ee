#include "client/handle_table.h"

namespace fargpu::client {

HandleTable::~HandleTable() {
  for (auto& entry : chunks_) {
    Chunk* chunk = entry.load(std::memory_order_relaxed);
    if (chunk == nullptr) continue;
    for (auto& object : chunk->slots) delete object.load(std::memory_order_relaxed);
    delete chunk;
  }
}

std::atomic<Object*>* HandleTable::slot(uint64_t serial) const {
  const uint64_t chunk_index = serial / kChunkSlots;
  if (chunk_index >= kChunks) return nullptr;
  Chunk* chunk = chunks_[chunk_index].load(std::memory_order_acquire);  // pairs with publish()
  return chunk == nullptr ? nullptr : &chunk->slots[serial % kChunkSlots];
}

uint64_t HandleTable::reserve(rpc::HandleKind kind) {
  const uint64_t serial = next_serial_.fetch_add(1, std::memory_order_relaxed);
  if (serial >= kChunks * kChunkSlots) return 0;
  return rpc::make_handle(kind, serial);
}

Object* HandleTable::publish(std::unique_ptr<Object> object) {
  const uint64_t serial = rpc::handle_serial(object->id);
  if (serial == 0 || serial >= kChunks * kChunkSlots) return nullptr;
  std::lock_guard lock(mutex_);
  auto& chunk = chunks_[serial / kChunkSlots];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    chunk.store(new Chunk, std::memory_order_release);  // pairs with slot()
  }
  std::atomic<Object*>* place = slot(serial);
  Object* raw = object.release();
  Object* before = place->exchange(raw, std::memory_order_release);  // pairs with find()
  if (before != nullptr) bury(std::unique_ptr<Object>(before));
  return raw;
}

Object* HandleTable::find(rpc::HandleKind kind, uint64_t id) const {
  if (rpc::handle_kind(id) != kind || (id & 15) != 0) return nullptr;
  const std::atomic<Object*>* place = slot(rpc::handle_serial(id));
  if (place == nullptr) return nullptr;
  Object* object = place->load(std::memory_order_acquire);  // pairs with publish()
  return object != nullptr && object->id == id ? object : nullptr;
}

bool HandleTable::erase(uint64_t id) {
  std::lock_guard lock(mutex_);
  if (find(rpc::handle_kind(id), id) == nullptr) return false;
  Object* object = slot(rpc::handle_serial(id))->exchange(nullptr, std::memory_order_acq_rel);
  bury(std::unique_ptr<Object>(object));
  return true;
}

size_t HandleTable::erase_if(const std::function<bool(const Object&)>& gone) {
  std::lock_guard lock(mutex_);
  size_t count = 0;
  const uint64_t end = next_serial_.load(std::memory_order_relaxed);
  for (uint64_t serial = 1; serial < end; ++serial) {
    std::atomic<Object*>* place = slot(serial);
    if (place == nullptr) continue;
    Object* object = place->load(std::memory_order_relaxed);
    if (object == nullptr || !gone(*object)) continue;
    place->store(nullptr, std::memory_order_release);
    bury(std::unique_ptr<Object>(object));
    ++count;
  }
  return count;
}

void HandleTable::for_each(const std::function<void(Object&)>& visit) const {
  const uint64_t end = next_serial_.load(std::memory_order_relaxed);
  for (uint64_t serial = 1; serial < end; ++serial) {
    std::atomic<Object*>* place = slot(serial);
    if (place == nullptr) continue;
    if (Object* object = place->load(std::memory_order_acquire)) visit(*object);
  }
}

void HandleTable::bury(std::unique_ptr<Object> object) {
  graveyard_.push_back(std::move(object));
  if (graveyard_.size() > kGraveyard) graveyard_.pop_front();
}

}  // namespace fargpu::client
