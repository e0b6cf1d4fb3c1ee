// PhysicalMemory: what cuMemCreate made, as the ledger sees it. The driver frees such memory when
// its last handle is released and its last mapping is gone; only then is it refunded. Pure
// bookkeeping, one thread (the executor's).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

namespace fargpu::server {

class PhysicalMemory {
 public:
  void created(uint64_t handle, uint64_t bytes);
  // cuMemRetainAllocationHandle gave `handle` for the memory that is mapped at `address`.
  void retained(uint64_t handle, uint64_t address);
  // Each returns the bytes to refund: 0 while handles or mappings remain, or when nothing is known.
  [[nodiscard]] uint64_t released(uint64_t handle);
  [[nodiscard]] uint64_t unmapped(uint64_t address, uint64_t bytes);
  void mapped(uint64_t address, uint64_t bytes, uint64_t handle);

 private:
  struct Memory {
    uint64_t bytes = 0;
    uint64_t references = 0;  // handles and mappings
  };
  struct Handle {
    std::shared_ptr<Memory> memory;
    uint64_t count = 0;
  };
  struct Mapping {
    uint64_t bytes = 0;
    std::shared_ptr<Memory> memory;
  };
  static uint64_t drop(Memory& memory);

  std::unordered_map<uint64_t, Handle> handles_;
  std::map<uint64_t, Mapping> mappings_;  // by address
};

}  // namespace fargpu::server
