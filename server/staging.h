// Staging: buffers between the network and the copy engine, registered with the driver so that copies run without the CPU.
//
// A slot belongs to whoever took it, until it is given back; after an asynchronous copy it is given back together with the fence that
// says when the driver is done with it. Memory is our own mapping, registered in the context that first used the slot: when that context
// goes, only the registration goes with it. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "server/fences.h"

namespace fargpu::server {

class StagingSlot {
 public:
  StagingSlot(std::byte* memory, size_t bytes) : memory_(memory), bytes_(bytes) {}
  ~StagingSlot();
  StagingSlot(const StagingSlot&) = delete;
  StagingSlot& operator=(const StagingSlot&) = delete;

  std::span<std::byte> first(size_t bytes) const { return {memory_, bytes}; }
  size_t size() const { return bytes_; }

 private:
  friend class Staging;
  std::byte* memory_;
  size_t bytes_;
  uint64_t registered_in_ = 0;  // serial of the context; 0: plain memory
};

class Staging {
 public:
  static constexpr size_t kUsualBytes = size_t{256} << 20;  // of slots under way; beyond it the fences are waited for
  static constexpr size_t kMostBytes = size_t{1} << 30;

  Staging(const DriverTable& driver, Fences& fences) : driver_(driver), fences_(fences) {}

  // At least `bytes` large; registered in the current context (serial `context_serial`; 0: none is current). Null: no memory, or too
  // many slots under way. `may_wait`: wait a little for slots under way rather than take more memory than usual.
  std::unique_ptr<StagingSlot> take(size_t bytes, uint64_t context_serial, bool may_wait);
  void give_back(std::unique_ptr<StagingSlot> slot);
  // Free once `event` (of Fences, recorded in context `context_serial`) has happened.
  void give_back_after(std::unique_ptr<StagingSlot> slot, uint64_t context_serial, CUevent event);
  // Takes back what is done. Wants some context current.
  void reclaim();
  // Before a context is destroyed: its fences are not asked any more, and what was registered in it is let go.
  void forget_context(uint64_t context_serial);
  // After it was destroyed: what its copies read is free.
  void context_destroyed() { parked_.clear(); }

  size_t bytes_in_use() const { return bytes_in_use_; }

 private:
  struct Busy {
    std::unique_ptr<StagingSlot> slot;
    uint64_t context_serial;
    CUevent event;
  };
  void wait_for_room(size_t bytes);

  const DriverTable& driver_;
  Fences& fences_;
  std::vector<std::unique_ptr<StagingSlot>> idle_;
  std::deque<Busy> busy_;
  std::vector<std::unique_ptr<StagingSlot>> parked_;  // of a context that is being destroyed
  std::vector<uint64_t> gone_;  // serials of contexts that slots taken now may still name
  size_t idle_bytes_ = 0, bytes_in_use_ = 0;
};

}  // namespace fargpu::server
