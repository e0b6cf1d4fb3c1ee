// StagingRing: slots of memory shared with the worker, through which large copies from and to
// pageable memory go: while the GPU copies one slot, the CPU fills or empties the next.
//
// A slot is taken, used by at most one copy, and given back; it is free again when the worker says
// in its CompletionWord that the copy is done with it. The ring belongs to one context, like every
// shared segment. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "client/memory/shared_segment.h"
#include "common/rpc/completion_word.h"

namespace fargpu::client {

class StagingRing {
 public:
  // A GPU copies a slot in about 40 us over PCIe 5, which hides the 10 us that a piece costs in
  // calls; all slots together stay in the cache of a server's CPU, so that neither side's copy goes
  // to memory for them. More than four slots only help when the two sides take turns in being slow.
  static constexpr size_t kSlotBytes = 2u << 20;
  static constexpr unsigned kSlots = 8;

  static std::shared_ptr<StagingRing> make(Session& session, Context& context);

  struct Slot {
    unsigned index = 0;
    std::byte* memory = nullptr;
    rpc::CompletionWord* word = nullptr;
    uint64_t value = 0;  // what the worker will set the word to
  };
  // nullopt: none is free (within `patience`).
  std::optional<Slot> try_take();
  std::optional<Slot> take(std::chrono::milliseconds patience);
  // `sent`: a copy that will set the word is under way.
  void give_back(const Slot& slot, bool sent);

  // The context is gone: words may never be set again.
  void close() { closed_.store(true, std::memory_order_release); }
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  explicit StagingRing(SharedSegment segment);
  rpc::CompletionWord* word(unsigned slot);

  struct State {
    bool taken = false;
    uint64_t sent = 0;  // the word's value when the last copy is done
  };
  SharedSegment segment_;
  std::mutex mutex_;
  std::array<State, kSlots> states_;  // guarded by mutex_
  unsigned next_ =
      0;  // guarded by mutex_: slots are taken in turn, so that the next one is the oldest
  std::atomic<bool> closed_{false};
};

// The rings of a session, made when a context first needs one.
class StagingRings {
 public:
  // Null: not possible here.
  std::shared_ptr<StagingRing> get(Session& session, Context& context);
  void forget(const Context& context);

 private:
  std::mutex mutex_;
  std::map<const Context*, std::shared_ptr<StagingRing>>
      rings_;  // guarded by mutex_; null: refused once
};

}  // namespace fargpu::client
