#include "client/call/report.h"

#include <pthread.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>

#include "client/call/report_call_sites.h"
#include "client/call/report_counts.h"
#include "client/call/report_text.h"
#include "common/rpc/link_times.h"

namespace fargpu::client::report {
namespace {

// A thread's counters. They stay when it ends, and another thread goes on with them.
struct Block {
  Counts counts;
  bool taken = true;      // guarded by the mutex
  Block* next = nullptr;  // the same
};

// Constructed again in a forked child, where its owner may not exist.
alignas(std::mutex) constinit std::mutex mutex;
constinit Block* first = nullptr;  // guarded by the mutex; never freed: calls come until the end
constinit thread_local Block* mine = nullptr;
// What the thread had sent and received when its last call ended.
constinit thread_local rpc::link_times::ThreadBytes bytes_before{};

struct GiveBack {
  ~GiveBack() {
    if (mine == nullptr) return;
    const std::lock_guard lock(mutex);
    mine->taken = false;
    mine = nullptr;
  }
};

Counts& take() {
  static thread_local const GiveBack at_end_of_thread;
  (void)at_end_of_thread;
  const std::lock_guard lock(mutex);
  Block* block = first;
  while (block != nullptr && block->taken) block = block->next;
  if (block == nullptr) {
    block = std::make_unique<Block>().release();
    block->next = first;
    first = block;
  }
  block->taken = true;
  mine = block;
  return block->counts;
}

Counts& counts() { return mine != nullptr ? mine->counts : take(); }

// What the parent counted is the parent's.
void forget_after_fork() {
  new (&mutex) std::mutex;
  first = nullptr;
  mine = nullptr;
  rpc::link_times::forget_after_fork();
  bytes_before = {};
  call_sites::forget_after_fork();
  begin_anew();
}

}  // namespace

void start_if_asked() {
  if (!is_asked()) return;
  pthread_atfork(nullptr, nullptr, forget_after_fork);
  std::atexit([] {
    is_on.store(false, std::memory_order_relaxed);
    const auto sum = std::make_unique<Counts>();
    add_up(*sum);
    print(*sum);
  });
  call_sites::start_if_asked();
  rpc::counting_calls.store(true, std::memory_order_relaxed);
  is_on.store(true, std::memory_order_relaxed);
}

void count_call(uint16_t opcode, const rpc::ThreadCalls& before, uint64_t nanoseconds,
                CUresult result) {
  if (!enabled()) return;
  OfFunction& of = counts().functions[place_of(opcode)];
  const bool waited = rpc::thread_calls.waited != before.waited;
  if (waited) {
    of.waited.add(1);
    of.nanoseconds.add(nanoseconds);
  } else if (rpc::thread_calls.sent != before.sent) {
    of.sent.add(1);
  } else {
    of.local.add(1);
  }
  of.inside.add(nanoseconds);
  const rpc::link_times::ThreadBytes bytes = rpc::link_times::thread_bytes;
  const rpc::link_times::ThreadBytes more{bytes.round_trips - bytes_before.round_trips,
                                          bytes.sent - bytes_before.sent,
                                          bytes.received - bytes_before.received};
  of.round_trips.add(more.round_trips);
  of.bytes_sent.add(more.sent);
  of.bytes_received.add(more.received);
  bytes_before = bytes;
  if (waited && call_sites::enabled())
    call_sites::count(place_of(opcode),
                      {1, nanoseconds, more.round_trips, more.sent, more.received});
  if (result == CUDA_ERROR_NOT_SUPPORTED) of.not_supported.add(1);
}

void count_copy(bool to_device, Route route, uint64_t bytes) {
  OfRoute& of = counts().copies[to_device ? 1 : 0][static_cast<size_t>(route)];
  of.copies.add(1);
  of.bytes.add(bytes);
}

void count_image_found() { counts().images_found.add(1); }

void count_image_sent(uint64_t bytes, uint64_t bytes_sent) {
  Counts& here = counts();
  here.images_sent.add(1);
  here.image_bytes.add(bytes);
  here.image_bytes_sent.add(bytes_sent);
}

void add_up(Counts& sum) {
  const std::lock_guard lock(mutex);
  for (const Block* block = first; block != nullptr; block = block->next) {
    const Counts& more = block->counts;
    const auto add = [](Counter& to, const Counter& from) { to.add(from.get()); };
    for (size_t i = 0; i < sum.functions.size(); ++i) {
      add(sum.functions[i].local, more.functions[i].local);
      add(sum.functions[i].sent, more.functions[i].sent);
      add(sum.functions[i].waited, more.functions[i].waited);
      add(sum.functions[i].nanoseconds, more.functions[i].nanoseconds);
      add(sum.functions[i].inside, more.functions[i].inside);
      add(sum.functions[i].round_trips, more.functions[i].round_trips);
      add(sum.functions[i].bytes_sent, more.functions[i].bytes_sent);
      add(sum.functions[i].bytes_received, more.functions[i].bytes_received);
      add(sum.functions[i].not_supported, more.functions[i].not_supported);
    }
    for (size_t direction = 0; direction < 2; ++direction) {
      for (size_t i = 0; i < kRoutes; ++i) {
        add(sum.copies[direction][i].copies, more.copies[direction][i].copies);
        add(sum.copies[direction][i].bytes, more.copies[direction][i].bytes);
      }
    }
    add(sum.images_found, more.images_found);
    add(sum.images_sent, more.images_sent);
    add(sum.image_bytes, more.image_bytes);
    add(sum.image_bytes_sent, more.image_bytes_sent);
  }
}

}  // namespace fargpu::client::report
