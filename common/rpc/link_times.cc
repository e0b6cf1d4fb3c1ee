#include "common/rpc/link_times.h"

#include <chrono>
#include <mutex>
#include <new>

namespace fargpu::rpc::link_times {
namespace {

// Constructed again in a forked child, where its owner may not exist.
alignas(std::mutex) constinit std::mutex mutex;
constinit LinkEstimate estimate;  // guarded by the mutex, as are the channels' LinkUse

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::nano>(time).count();
}

}  // namespace

void sent(LinkUse& link, uint64_t bytes, uint64_t data) {
  thread_bytes.sent += data;
  const std::lock_guard lock(mutex);
  estimate.send(link, now(), bytes + data);
}

void answered(LinkUse& link, const LinkMark& mark, uint64_t bytes, uint64_t data, bool too_early) {
  thread_bytes.received += data;
  if (!too_early) ++thread_bytes.round_trips;
  const std::lock_guard lock(mutex);
  estimate.answer(link, mark, now(), bytes + data, !too_early, thread_bytes.round_trips);
}

void noticed(LinkUse& link, uint64_t bytes) {
  const std::lock_guard lock(mutex);
  estimate.notice(link, now(), bytes);
}

uint64_t begin_wait() {
  const std::lock_guard lock(mutex);
  return estimate.times().in_a_row;
}

void saw_notice(LinkUse& link, uint64_t begun) {
  const std::lock_guard lock(mutex);
  // What answers no frame since the last answer was on its way together with that.
  const bool round_trip = link.awaits_answer;
  if (round_trip) ++thread_bytes.round_trips;
  estimate.see_notice(link, begun, round_trip, thread_bytes.round_trips);
}

LinkTimes so_far() {
  const std::lock_guard lock(mutex);
  return estimate.times();
}

void forget_after_fork() {
  new (&mutex) std::mutex;
  estimate = LinkEstimate();
  thread_bytes = {};
}

}  // namespace fargpu::rpc::link_times
