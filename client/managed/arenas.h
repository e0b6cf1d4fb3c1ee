// Arenas: places of managed allocations in chunks. A large allocation has a chunk of its own, small
// ones of a device share chunks. It only keeps books: the worker's memory at a chunk's addresses is
// made before add(), and ended after give_back() has returned the chunk. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>

#include "client/memory/address_window.h"
#include "client/memory/dual_mapping.h"

namespace fargpu::client {

class Arenas {
 public:
  // The size of a chunk for an allocation of this many bytes; 0: too many.
  static uint64_t chunk_bytes(uint64_t bytes);

  struct Allocated {
    uint64_t address;
    const DualMapping* chunk;  // which stays where it is
  };
  // `bytes`: whole pages. In a chunk that is there; nullopt: none has room.
  std::optional<Allocated> take(int device, uint64_t bytes);
  // In a new chunk, which is large enough.
  Allocated add(int device, DualMapping chunk, uint64_t bytes);
  // The result of take() or add(), with the same size. The chunk, when nothing else is in it.
  std::optional<DualMapping> give_back(uint64_t address, uint64_t bytes);

 private:
  struct Arena {
    int device;
    DualMapping chunk;
    AddressWindow free;
    uint64_t used = 0;
  };
  static std::optional<Allocated> take_from(Arena& arena, uint64_t bytes);

  std::mutex mutex_;
  std::list<Arena> arenas_;  // guarded by mutex_
};

}  // namespace fargpu::client
