#include "common/rpc/completion_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "common/rpc/thread_calls.h"
#include "common/transport/spin.h"

namespace fargpu::rpc {
namespace {

using Clock = std::chrono::steady_clock;

// The low half of the value, which is what a futex can compare (x86-64 is little-endian).
uint32_t* futex_of(CompletionWord& word) { return reinterpret_cast<uint32_t*>(&word.value); }

void sleep_while(CompletionWord& word, uint32_t low_half, std::chrono::nanoseconds at_most) {
  const timespec limit{static_cast<time_t>(at_most.count() / 1'000'000'000),
                       static_cast<long>(at_most.count() % 1'000'000'000)};
  ::syscall(SYS_futex, futex_of(word), FUTEX_WAIT, low_half, &limit, nullptr, 0);
}

}  // namespace

void publish(CompletionWord& word, uint64_t value, int32_t result, uint32_t outputs) {
  word.outputs.store(outputs, std::memory_order_relaxed);
  word.result.store(result, std::memory_order_relaxed);
  word.value.store(
      value,
      std::memory_order_seq_cst);  // pairs with the load after `sleepers` in wait_until_reached
  if (word.sleepers.load(std::memory_order_seq_cst) != 0) {
    ::syscall(SYS_futex, futex_of(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

bool wait_until_reached(CompletionWord& word, uint64_t value, std::chrono::nanoseconds spin,
                        Clock::time_point deadline) {
  if (reached(word, value)) return true;
  count_wait();
  for (transport::Spin spinning(spin, deadline); spinning.go_on();) {
    if (reached(word, value)) return true;
  }
  word.sleepers.fetch_add(1, std::memory_order_seq_cst);
  bool there = false;
  for (;;) {
    const uint64_t seen = word.value.load(std::memory_order_seq_cst);
    there = seen >= value;
    const auto now = Clock::now();
    if (there || now >= deadline) break;
    sleep_while(word, static_cast<uint32_t>(seen),
                std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - now));
  }
  word.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return there;
}

}  // namespace fargpu::rpc
