// CompletionWord: a word in shared memory in which the worker reports its progress to the client.
//
// The worker publishes a value. The client waits for it: first it spins, then it sleeps in a futex.
// The client does not have to trust the word: a wrong value only makes one of its own copies look
// finished too early or too late. Zeroed memory is a valid word with value 0. Any thread on both
// sides.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace fargpu::rpc {

struct alignas(64) CompletionWord {
  // Only grows. Stored by the publisher with release, loaded by the waiter with acquire.
  std::atomic<uint64_t> value;
  std::atomic<int32_t> result;  // CUresult of the work that `value` counts; ordered by `value`
  // How many notices with device output were sent before; ordered by `value`.
  std::atomic<uint32_t> outputs;
  // Waiters that may be asleep. seq_cst on both sides: either the publisher sees the sleeper, or
  // the sleeper sees the value.
  std::atomic<uint32_t> sleepers;
};
static_assert(sizeof(CompletionWord) == 64 && std::atomic<uint64_t>::is_always_lock_free);

void publish(CompletionWord& word, uint64_t value, int32_t result, uint32_t outputs = 0);

inline bool reached(const CompletionWord& word, uint64_t value) {
  return word.value.load(std::memory_order_acquire) >= value;
}

// True when the value is reached; false at the deadline. Spins for `spin` before it sleeps.
bool wait_until_reached(CompletionWord& word, uint64_t value, std::chrono::nanoseconds spin,
                        std::chrono::steady_clock::time_point deadline);

}  // namespace fargpu::rpc
