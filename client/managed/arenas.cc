#include "client/managed/arenas.h"

#include <utility>

namespace fargpu::client {

uint64_t Arenas::chunk_bytes(uint64_t bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 46;
  if (bytes > kMost) return 0;
  return (bytes + kManagedGranule - 1) / kManagedGranule * kManagedGranule;
}

std::optional<Arenas::Allocated> Arenas::take_from(Arena& arena, uint64_t bytes) {
  const auto address = arena.free.take(bytes);
  if (!address) return std::nullopt;
  arena.used += bytes;
  return Allocated{*address, &arena.chunk};
}

std::optional<Arenas::Allocated> Arenas::take(int device, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  for (Arena& arena : arenas_) {
    if (arena.device != device) continue;
    if (const auto taken = take_from(arena, bytes)) return taken;
  }
  return std::nullopt;
}

Arenas::Allocated Arenas::add(int device, DualMapping chunk, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const uint64_t begin = chunk.address(), end = begin + chunk.bytes();
  Arena& arena = arenas_.emplace_back(
      Arena{.device = device, .chunk = std::move(chunk), .free = AddressWindow(begin, end)});
  return *take_from(arena, bytes);
}

std::optional<DualMapping> Arenas::give_back(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  for (auto arena = arenas_.begin(); arena != arenas_.end(); ++arena) {
    if (!arena->free.contains(address)) continue;
    arena->used -= bytes;
    if (arena->used != 0) {
      arena->chunk.clear(address, bytes);
      arena->free.give_back(address, bytes);
      return std::nullopt;
    }
    std::optional<DualMapping> chunk(std::move(arena->chunk));
    arenas_.erase(arena);
    return chunk;
  }
  return std::nullopt;
}

}  // namespace fargpu::client
