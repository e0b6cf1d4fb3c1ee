// CompletionWord: a place in memory shared by two processes where one says to the other how far it
// has got.
//
// The worker publishes; the client waits, at first by looking, then asleep in a futex. The side
// that waits trusts nothing here: a wrong value is a copy of its own that looks finished too early
// or too late. Zeroed memory is a valid word at value 0. Any thread on both sides.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace fargpu::rpc {

struct alignas(64) CompletionWord {
  // grows; written by the publisher with release, read by the waiter with acquire
  std::atomic<uint64_t> value;
  std::atomic<int32_t> result;  // CUresult of what `value` stands for; ordered by `value`
  // how many notices with device output were sent before; ordered by `value`
  std::atomic<uint32_t> outputs;
  std::atomic<uint32_t>
      // waiters that may be asleep; seq_cst on both sides, so that either the wake-up or the value
      // is seen
      sleepers;
};
static_assert(sizeof(CompletionWord) == 64 && std::atomic<uint64_t>::is_always_lock_free);

void publish(CompletionWord& word, uint64_t value, int32_t result, uint32_t outputs = 0);

inline bool reached(const CompletionWord& word, uint64_t value) {
  return word.value.load(std::memory_order_acquire) >= value;
}

// True when the value is reached; false at the deadline. Looks for `spin` before it sleeps.
bool wait_until_reached(CompletionWord& word, uint64_t value, std::chrono::nanoseconds spin,
                        std::chrono::steady_clock::time_point deadline);

}  // namespace fargpu::rpc
