// The service thread of Channel. It receives notices and loss while no call waits, flushes what
// senders left, watches liveness, and has the transport take its memory when a session begins.
//
// While the session is idle it sleeps in poll without a timeout and costs nothing. While calls are
// made it does not watch the transport, since every reply would wake it for nothing; it naps with a
// timer.
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "common/base/descriptors.h"
#include "common/host/look_again.h"
#include "common/rpc/channel_impl.h"
#include "common/transport/poll.h"
#include "common/wire/control.h"

namespace fargpu::rpc {
namespace {

constexpr auto kShortNap = std::chrono::milliseconds(1);
constexpr auto kNapForNotices = std::chrono::microseconds(100);  // between calls that wait
constexpr auto kLongestNap = std::chrono::milliseconds(16);
constexpr auto kRetryFlush = std::chrono::milliseconds(1);
// The transport's memory is taken bit by bit, beside what the application does first. A new page
// costs up to 5 us on a virtual machine.
constexpr size_t kMemoryAtOnce = 64 << 10;  // bytes
constexpr auto kBetweenMemory = std::chrono::milliseconds(1);
constexpr int kTicksAfterFlush = 10;  // how many kFlushDelay the timer stays armed after a burst

}  // namespace

void Channel::Impl::serve() {
  ::prctl(PR_SET_NAME, "fargpu-channel");
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // ns: flushes are due within 100 us

  uint64_t seen_waits = 0;
  Clock::duration nap = kShortNap;
  int ticks = 0;
  bool quiet = false;  // nothing happened in the last watch period
  bool memory_left = true;

  std::unique_lock lock(wait_mutex, std::defer_lock);
  while (!stop) {
    const auto now = Clock::now();
    flush_armed.store(false);
    if (unflushed_since.load() != 0) ticks = kTicksAfterFlush;
    Deadline flush_due = flush_if_due(now);
    if (flush_due == kNoDeadline && ticks > 0) {
      --ticks;
      flush_due = now + kFlushDelay;
    }
    if (flush_due != kNoDeadline) flush_armed.store(true);

    lock.lock();
    const bool call_waits = first != nullptr || reader == Reader::kCaller || waiting_senders > 0;
    const uint64_t waits_now = waits;
    const bool callers_active = waits_now != seen_waits;
    seen_waits = waits_now;
    const bool watch = !callers_active && try_lease(Reader::kService);
    // arm() belongs to the receiving side, so it needs the lease.
    const bool readable = watch && has_descriptor && !transport->arm();
    Deadline until = kNoDeadline;
    if (!watch) {
      if (!sink.awaits_notices()) {
        nap = std::clamp<Clock::duration>(2 * nap, kShortNap, kLongestNap);
      } else {
        nap = kShortNap;  // the caller reads
        if (callers_active) nap = kNapForNotices;
      }
      until = now + nap;
      service_sleep = callers_active ? ServiceSleep::kNap : ServiceSleep::kLongNap;
    } else if (quiet && !call_waits && flush_due == kNoDeadline) {
      service_sleep = ServiceSleep::kDoze;
    } else {
      until = now + options.keepalive;
      service_sleep = ServiceSleep::kWatch;
    }
    if (service_sleep == ServiceSleep::kDoze && waits != seen_waits) {
      until = now + options.keepalive;
      service_sleep = ServiceSleep::kWatch;
    }
    // The last lease holder may have left without seeing this thread's sleep.
    const bool reader_gone = service_sleep == ServiceSleep::kLongNap && reader == Reader::kNobody;
    if (watch) {
      nap = kShortNap;
      give_back();  // the next lease holder sees service_sleep
    }
    lock.unlock();
    if (reader_gone) continue;

    check_liveness(now, call_waits);
    if (memory_left) {
      memory_left = transport->take_memory(kMemoryAtOnce);
      until = std::min<Deadline>(until, now + kBetweenMemory);
    }
    const Wake wake = readable ? Wake::kReadable : sleep(std::min(until, flush_due), watch);
    quiet = watch && wake == Wake::kTimeout && flush_due == kNoDeadline && !memory_left;

    lock.lock();
    service_sleep = ServiceSleep::kAwake;
    if ((!watch || wake == Wake::kReadable || lost) && try_lease(Reader::kService)) {
      read(lock, nullptr, now);
      notify_first();
    }
    const bool finished = lost && told_sink;
    lock.unlock();
    if (finished) break;
  }

  // No caller may wait for ever, whatever ended this thread.
  lock.lock();
  while (reader != Reader::kNobody) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock.lock();
  }
  fail_all_waiters(lock, lost_status());
}

Channel::Impl::Wake Channel::Impl::sleep(Deadline until, bool watch_transport) {
  if (watch_transport && !has_descriptor) {
    // Nothing to poll on: wait inside the transport. Callers and kick() wake it.
    std::unique_lock lock(wait_mutex);
    if (!try_lease(Reader::kService)) return Wake::kKicked;
    const auto frames_before = transport->statistics().frames_received;
    read(lock, nullptr, until);
    notify_first();
    const bool idle = frames_before == transport->statistics().frames_received;
    return !kick_event.drain() && idle && Clock::now() >= until ? Wake::kTimeout : Wake::kKicked;
  }
  pollfd sources[2] = {{kick_event.get(), POLLIN, 0}, {transport->poll_descriptor(), POLLIN, 0}};
  const Deadline look = descriptors::is_foreign_process()
                            ? std::min(until, transport::deadline_after(descriptors::kLookAgain))
                            : until;
  auto ready = transport::poll_until(std::span(sources, watch_transport ? 2 : 1), look);
  if (!ready.ok()) {
    end_session(ready.status());
    return Wake::kReadable;
  }
  if (descriptors::own(kick_event.get()) < 0) {
    end_session(Status(StatusCode::kLost, "the program has closed its descriptors"));
    return Wake::kReadable;
  }
  if (*ready == 0) return look < until ? Wake::kKicked : Wake::kTimeout;
  if (sources[0].revents != 0) kick_event.drain();
  return sources[1].revents != 0 ? Wake::kReadable : Wake::kKicked;
}

Deadline Channel::Impl::flush_if_due(Clock::time_point now) {
  const int64_t since = unflushed_since.load();
  if (since == 0 && !some_aside) return kNoDeadline;
  const Deadline due = Clock::time_point(Clock::duration(since)) + flush_delay;
  if (now < due) return due;
  SendLock lock(send_mutex, std::try_to_lock);
  if (!lock.owns_lock()) return now + kFlushDelay;  // a sender is at it
  return flush_aside(lock, now);
}

Deadline Channel::Impl::flush_aside(SendLock& lock, Clock::time_point now) {
  last_flush = now;
  const bool aside = sends_aside && !some_aside && transport->set_aside();
  Status status;
  if (aside) {
    // The sender of the next frame need not kick: the timer set below covers it, too.
    flush_armed.store(true);
    unflushed_bytes = 0;
    unflushed_since.store(0);
    lock.unlock();
    status = transport->send_aside();
  } else {
    status = flush_now(now);  // what is aside goes first
    lock.unlock();
  }
  const bool left = status.code() == StatusCode::kTimeout;
  some_aside = (aside || some_aside) && left;
  if (left) return now + kRetryFlush;
  if (!status.ok()) survives(status);
  return aside && status.ok() ? now + kFlushDelay : kNoDeadline;
}

void Channel::Impl::check_liveness(Clock::time_point now, bool call_waits) {
  const auto statistics = transport->statistics();
  // Bytes of either connection are a sign of life: this one may stand still until deliveries have
  // landed.
  const uint64_t received =
      statistics.bytes_received + (bulk == nullptr ? 0 : bulk->bytes_received());
  switch (liveness.look(now, call_waits, received, statistics.bytes_sent)) {
    case Liveness::Verdict::kFine:
      return;
    case Liveness::Verdict::kPing:
      if (!try_send_ping()) liveness.could_not_ping(now, statistics.bytes_sent);
      return;
    case Liveness::Verdict::kLost:
      if (survives(
              Status(StatusCode::kLost,
                     fmt::format("connection lost: the server ({}) has not answered for {:.1f} s",
                                 transport->describe(), liveness.silence(now).count()))))
        liveness.begins_again(Clock::now(), statistics.bytes_sent);
  }
}

bool Channel::Impl::try_send_ping() {
  std::unique_lock lock(send_mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const auto now = Clock::now();
  auto slot = transport->reserve(sizeof(wire::FrameHeader), now);
  if (!slot.ok()) return false;
  wire::FrameHeader header;
  header.opcode = wire::kPing;
  header.flags = wire::kWantReply;
  header.sequence = take_sequence();
  std::memcpy(slot->data(), &header, sizeof header);
  if (!transport->commit(sizeof header, {}, now).ok()) return false;
  return flush_now(now).ok();
}

}  // namespace fargpu::rpc
