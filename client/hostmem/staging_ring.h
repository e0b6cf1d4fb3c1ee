// StagingRing: slots of memory that the worker can reach, for large copies from and to pageable
// memory. While the GPU or the network copies one slot, the CPU fills or empties the next. The
// slots are shared with the worker, or over rdma registered with the adapter.
//
// A slot is taken, used by at most one copy, and given back. It is free again when its
// CompletionWord says that the copy is done with it. The worker writes that word in shared memory;
// over rdma its notice `copied` does (StagingRings::copied). The ring belongs to one context, like
// every shared segment. Any thread.
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

#include "client/hostmem/shared_segment.h"
#include "common/rpc/channel.h"
#include "common/rpc/completion_word.h"
#include "common/transport/remote_memory.h"

namespace fargpu::client {

class RemoteHost;

class StagingRing {
 public:
  // A GPU copies a slot in about 40 us over PCIe 5, which hides the 10 us that a piece costs in
  // calls. All slots together fit into the cache of a server's CPU, so neither side's copy goes to
  // memory for them. More than four slots help only when the two sides are slow in turns.
  static constexpr size_t kSlotBytes = 2u << 20;
  static constexpr unsigned kSlots = 8;

  // nullptr: not possible, or refused. `id` names this ring in its tickets.
  static std::shared_ptr<StagingRing> make(Link& link, HostCalls& functions,
                                           RemoteHost& remote_host, Context& context, uint32_t id);
  // Whether this connection supports it.
  static bool possible(Link& link);

  struct Slot {
    unsigned index = 0;
    std::byte* memory = nullptr;
    rpc::CompletionWord* word = nullptr;
    uint64_t value = 0;  // the worker's next value of the word
  };
  // nullopt: none is free (within `patience`).
  std::optional<Slot> try_take();
  std::optional<Slot> take(std::chrono::milliseconds patience);
  // Waits until the copy of a slot is done (its word has `value`); false at the deadline. `spin`:
  // how long to spin before sleeping, in shared memory.
  bool wait_until_done(rpc::CompletionWord& word, uint64_t value, std::chrono::nanoseconds spin,
                       std::chrono::steady_clock::time_point deadline);
  // `sent`: a copy that will set the word is under way.
  void give_back(const Slot& slot, bool sent);

  // Over rdma: the slots as the worker names them; nullptr when they are shared memory.
  const transport::RegisteredMemory* registered() const { return registered_.get(); }
  // The ticket of a copy of this slot, by which `copied` finds it.
  uint64_t ticket(const Slot& slot) const;
  static uint32_t ring_of(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 48); }
  // The worker says that the copy with this ticket is done.
  void copied(uint64_t ticket, int32_t result, uint32_t outputs);

  // The context was destroyed: words may never be set again.
  void close() { closed_.store(true, std::memory_order_release); }
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  StagingRing() = default;

  struct State {
    bool taken = false;
    uint64_t sent = 0;  // the word's value when the last copy is done
  };
  struct Unmap {
    void operator()(std::byte* memory) const;
  };
  std::optional<SharedSegment> segment_;
  std::unique_ptr<std::byte, Unmap> pages_;  // of the slots when there is no segment
  std::unique_ptr<transport::RegisteredMemory> registered_;
  rpc::Channel* channel_ = nullptr;  // that brings the notices, over rdma
  std::array<rpc::CompletionWord, kSlots> own_words_{};
  rpc::CompletionWord* words_ = nullptr;
  std::byte* slots_ = nullptr;
  uint32_t id_ = 0;
  std::mutex mutex_;
  std::array<State, kSlots> states_;  // guarded by mutex_
  // guarded by mutex_: slots are taken in turn, so that the next one is the oldest
  unsigned next_ = 0;
  std::atomic<bool> closed_{false};
};

// The rings of a session, made when a context first needs one.
class StagingRings {
 public:
  StagingRings(Link& link, HostCalls& functions, RemoteHost& remote_host)
      : link_(link), functions_(functions), remote_host_(remote_host) {}

  // Null: not possible here.
  std::shared_ptr<StagingRing> get(Context& context);
  void context_ended(const Context& context);
  // On the thread that receives.
  void copied(uint64_t ticket, int32_t result, uint32_t outputs);

 private:
  Link& link_;
  HostCalls& functions_;
  RemoteHost& remote_host_;
  std::mutex mutex_;  // held while a ring is made
  std::map<const Context*, std::shared_ptr<StagingRing>>
      rings_;                                               // guarded by mutex_; null: refused once
  uint32_t next_id_ = 1;                                    // guarded by mutex_
  std::mutex ids_mutex_;                                    // never held across a wait
  std::map<uint32_t, std::shared_ptr<StagingRing>> by_id_;  // guarded by ids_mutex_
};

}  // namespace fargpu::client
