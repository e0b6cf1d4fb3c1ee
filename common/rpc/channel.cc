#include "common/rpc/channel.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/base/address_check.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/host/thread.h"
#include "common/rpc/channel_impl.h"
#include "common/rpc/link_times.h"
#include "common/rpc/thread_calls.h"
#include "common/wire/control.h"

namespace fargpu::rpc {

Bytes Reply::body() const { return {heap_ ? heap_.get() : inline_, body_bytes_}; }

wire::SegmentReader& Reply::reader() {
  if (!reader_) reader_.emplace(body());
  return *reader_;
}

void Reply::take(const wire::FrameHeader& header, Bytes body) {
  result = header.result;
  bulk_bytes = header.bulk_bytes;
  body_bytes_ = body.size();
  if (body.empty()) return;
  if (body.size() > kInlineBytes || address_check::kOn)
    heap_ = std::make_unique_for_overwrite<std::byte[]>(body.size());
  std::memcpy(heap_ ? heap_.get() : inline_, body.data(), body.size());
}

Channel::Impl::Impl(std::unique_ptr<transport::Transport> made, NoticeSink& notice_sink,
                    ChannelOptions channel_options, EventFd event,
                    std::unique_ptr<transport::Transport> bulk_connection)
    : options(channel_options),
      sink(notice_sink),
      transport(std::move(made)),
      resumable(dynamic_cast<transport::Resumable*>(transport.get())),
      has_descriptor(transport->poll_descriptor() >= 0),
      visible_at_commit(transport->capabilities().visible_at_commit),
      sends_aside(transport->capabilities().sends_aside),
      flush_delay(sends_aside ? kAsideDelay : kFlushDelay),
      most_posted(std::min(kMostBytesAlone, transport->capabilities().max_slot_bytes) -
                  sizeof(wire::FrameHeader)),
      kick_event(std::move(event)),
      next_sequence(channel_options.first_sequence),
      liveness(channel_options.keepalive, Clock::now()) {
  if (bulk_connection != nullptr) {
    landings =
        std::make_unique<Landings>(sink, options.limits, link_use, [this] { transport->wake(); });
    bulk = std::make_unique<BulkSender>(std::move(bulk_connection));
  }
  service = Thread([this] { serve(); });
  if (bulk != nullptr) read_bulk();
}

Channel::Impl::~Impl() {
  closing = true;
  stop = true;
  end_session(Status(StatusCode::kLost, "the session was closed"));
  service.join();
}

// --- frames from the server, on the thread that reads ---

Result<std::span<std::byte>> Channel::Impl::bulk_buffer(const wire::FrameHeader& header,
                                                        Bytes body) {
  if ((header.flags & wire::kNotice) != 0) {
    if (header.bulk_bytes > options.limits.max_bulk_bytes) {
      return Status(StatusCode::kProtocol,
                    fmt::format("a notice of {} bytes, the limit is {}", header.bulk_bytes,
                                options.limits.max_bulk_bytes));
    }
    if (landings == nullptr || landings->all_landed()) {
      FARGPU_ASSIGN_OR_RETURN(const std::span<std::byte> buffer, sink.notice_buffer(header, body));
      if (!buffer.empty()) return buffer;
    }
    notice_bulk.resize(header.bulk_bytes);
    return std::span(notice_bulk);
  }
  std::lock_guard lock(wait_mutex);
  Waiter* waiter = find(header.sequence);
  if (waiter == nullptr || (header.flags & wire::kReply) == 0 ||
      header.bulk_bytes > waiter->bulk_out.size()) {
    return Status(
        StatusCode::kProtocol,
        fmt::format("the server sent {} bytes with opcode {}, sequence {}: {} were asked for",
                    header.bulk_bytes, header.opcode, header.sequence,
                    waiter == nullptr ? 0 : waiter->bulk_out.size()));
  }
  waiter->claimed = true;
  if (landings != nullptr && !landings->has_landed(behind(header))) [[unlikely]]
    return bulk_aside(header, *waiter);
  return waiter->bulk_out.first(header.bulk_bytes);
}

Status Channel::Impl::on_frame(const wire::FrameHeader& header, Bytes body,
                               std::span<std::byte> bulk) {
  if ((header.flags & wire::kNotice) != 0) {
    if (link_times::counted())
      link_times::noticed(link_use, sizeof header + body.size() + bulk.size());
    return on_notice(header, body, bulk);
  }
  if ((header.flags & wire::kReply) == 0) {
    return Status(StatusCode::kProtocol,
                  fmt::format("the server sent opcode {} as a request", header.opcode));
  }
  if ((header.flags & wire::kAsyncError) != 0) {
    if (landings != nullptr) return landings->take(header, {}, {});
    sink.on_async_error(header.opcode, header.sequence, header.context, header.result);
    return Status();
  }
  return on_reply(header, body);
}

Status Channel::Impl::on_reply(const wire::FrameHeader& header, Bytes body) {
  if (reads_for != nullptr && reads_for->sequence == header.sequence &&
      reads_for->opcode == header.opcode && !reads_for->done) {
    // The usual case, without the lock: only this thread uses these fields.
    reads_for->reply.take(header, body);
    reads_for->behind = behind(header);
    reads_for->done = true;
    return Status();
  }
  Waiter* waiter;
  {
    std::lock_guard lock(wait_mutex);
    waiter = find(header.sequence);
    if (waiter != nullptr && waiter->opcode != header.opcode) waiter = nullptr;
    if (waiter != nullptr) {
      waiter->claimed = true;
      unlink(*waiter);
    }
  }
  if (waiter == nullptr) {
    if (late_replies != 0 && header.opcode == late_opcode) {
      --late_replies;
      if (header.result != 0 && landings != nullptr) return landings->take(header, {}, {});
      if (header.result != 0)
        sink.on_async_error(header.opcode, header.sequence, header.context, header.result);
      return Status();
    }
    if (header.opcode == wire::kPing || header.opcode == wire::kInspect)
      return Status();  // a liveness ping, or a question whose deadline has passed
    return Status(
        StatusCode::kProtocol,
        fmt::format("the server answered a call that does not wait: opcode {}, sequence {}",
                    header.opcode, header.sequence));
  }
  waiter->reply.take(header, body);  // claimed: it stays until done
  waiter->behind = behind(header);
  std::lock_guard lock(wait_mutex);
  waiter->done = true;
  // Notify under the lock: the waiter may be destroyed as soon as it sees `done`.
  waiter->notify();
  return Status();
}

// --- waiting ---

Channel::Impl::Waiter* Channel::Impl::find(uint32_t sequence) {
  // Replies come nearly in order, so this is almost always the first waiter.
  for (Waiter* waiter = first; waiter != nullptr; waiter = waiter->next) {
    if (waiter->sequence == sequence && !waiter->done) return waiter;
  }
  return nullptr;
}

void Channel::Impl::unlink(Waiter& waiter) {
  if (waiter.previous != nullptr) {
    waiter.previous->next = waiter.next;
  } else {
    first = waiter.next;
  }
  (waiter.next ? waiter.next->previous : last) = waiter.previous;
  waiter.previous = waiter.next = nullptr;
}

void Channel::Impl::link(Waiter& waiter) {
  waiter.previous = last;
  if (last != nullptr) {
    last->next = &waiter;
  } else {
    first = &waiter;
  }
  last = &waiter;
}

void Channel::Impl::add(Waiter& waiter) {
  std::lock_guard lock(wait_mutex);
  link(waiter);
  begin_wait();
}

void Channel::Impl::begin_wait() {
  ++waits;
  // A dozing service thread has no timer, and liveness needs one.
  if (service_sleep == ServiceSleep::kDoze) kick();
}

bool Channel::Impl::try_remove(Waiter& waiter) {
  std::lock_guard lock(wait_mutex);
  if (waiter.claimed || waiter.done) return false;
  unlink(waiter);
  return true;
}

Status Channel::Impl::wait(Waiter& waiter, Deadline deadline) {
  std::unique_lock lock(wait_mutex, std::defer_lock);
  const auto read_for_it = [&] {
    // The bulk of a claimed waiter is arriving, and only the lease holder receives it.
    read(lock, &waiter, waiter.claimed ? kNoDeadline : deadline);
  };
  // The usual case: the lease is free, and the first receive() brings the reply.
  if (!try_lease(Reader::kCaller)) {
    lock.lock();
  } else if (!waiter.done) {
    read_for_it();
  } else {
    lock.lock();
    give_back();
  }
  while (!waiter.done) {
    if (deadline != kNoDeadline && !waiter.claimed && Clock::now() >= deadline) {
      unlink(waiter);
      waiter.status = Status(StatusCode::kTimeout, "the server did not answer in time");
      break;
    }
    if (try_lease(Reader::kCaller)) {
      read_for_it();
      continue;
    }
    if (reader == Reader::kService && !has_descriptor)
      transport->wake();  // the service thread may stay in receive() for long
    if (deadline == kNoDeadline || waiter.claimed) {
      waiter.wake.wait(lock);
    } else {
      waiter.wake.wait_until(lock, deadline);
    }
  }
  hand_over();
  lock.unlock();
  (void)next_sequence.load(std::memory_order_acquire);
  return after_landing(waiter, deadline);
}

Status Channel::Impl::read_alone(Waiter& waiter, Deadline deadline) {
  do {
    const bool written = waiter.early != nullptr && waiter.early->reached();
    const Result<size_t> received = transport->receive(*this, deadline);
    if (!received.ok()) return received.status();
    if (!written || *received != 0 || waiter.done) continue;
    // Nothing is left of what was sent before.
    if (!sink.awaits_notices()) {
      waiter.came_early = true;
      if (landings != nullptr) waiter.behind = landings->announced();
      return Status();
    }
    waiter.early = nullptr;
    transport->watch_word(nullptr);
  } while (!waiter.done && deadline == kNoDeadline);
  return Status();
}

Status Channel::Impl::wait_alone(Waiter& waiter, Deadline deadline) {
  begin_wait();
  reads_for = &waiter;
  if (waiter.early != nullptr) transport->watch_word(waiter.early);
  const Status lost_now = read_alone(waiter, deadline);
  if (waiter.early != nullptr) transport->watch_word(nullptr);
  if (waiter.came_early) {
    late_opcode = waiter.opcode;
    ++late_replies;
  } else if (!waiter.done || !lost_now.ok()) [[unlikely]] {
    const bool over = !lost_now.ok() && !survives(lost_now);
    std::unique_lock lock(wait_mutex);
    if (!waiter.done) link(waiter);
    if (over) fail_all_waiters(lock, lost_status());
    give_back();
    lock.unlock();
    return wait(waiter, deadline);
  }
  give_back();
  if (first != nullptr || watched()) {
    std::lock_guard lock(wait_mutex);
    hand_over();
  }
  (void)next_sequence.load(std::memory_order_acquire);
  return after_landing(waiter, deadline);
}

void Channel::Impl::no_longer_alone(Waiter* waiter) {
  std::lock_guard lock(wait_mutex);
  if (waiter != nullptr) {
    link(*waiter);
    begin_wait();  // the service thread may doze, and would not watch liveness
  }
  give_back();
  // This thread will not poll, so it wakes every thread that could.
  for (Waiter* other = first; other != nullptr; other = other->next) other->notify();
  if (watched()) kick();
}

void Channel::Impl::hand_over() {
  if (reader != Reader::kNobody) return;
  if (notify_first()) return;  // it takes the lease
  if (watched()) kick();  // nobody polls now, and receive() has undone the service thread's arm()
}

void Channel::Impl::read(std::unique_lock<std::mutex>& lock, Waiter* own, Deadline deadline) {
  reads_for = own;
  if (lock.owns_lock()) lock.unlock();
  Result<size_t> received = transport->receive(*this, deadline);
  const bool over = !received.ok() && !survives(received.status());
  lock.lock();
  if (own != nullptr && own->done) unlink(*own);
  if (over) fail_all_waiters(lock, lost_status());
  give_back();
}

// --- loss ---

// What breaks the rules ends the session, whatever the connection does. So does the loss of one of
// two connections.
bool Channel::Impl::survives(const Status& why) {
  const bool may_resume = why.code() == StatusCode::kLost && resumable != nullptr && !bulk;
  if (may_resume && !lost && !closing && resumable->resume(why)) return true;
  end_session(why);
  return false;
}

void Channel::Impl::end_session(const Status& why) {
  {
    std::lock_guard lock(why_mutex);
    if (!lost.load(std::memory_order_relaxed)) {
      why_lost = Status(StatusCode::kLost, why.message());
      lost.store(true, std::memory_order_release);
    }
  }
  transport->close();
  if (bulk != nullptr) {
    bulk->close();
    landings->end();
  }
  kick();
}

void Channel::Impl::kick() {
  kick_event.signal();
  if (!has_descriptor) transport->wake();
}

Status Channel::Impl::lost_status() {
  if (abandoned) return Status(StatusCode::kLost, "the session belongs to the parent process");
  std::lock_guard lock(why_mutex);
  return why_lost;
}

void Channel::Impl::fail_all_waiters(std::unique_lock<std::mutex>& lock, const Status& why) {
  if (!told_sink) {
    told_sink = true;
    lock.unlock();
    if (landings != nullptr) {
      landings->wait_for_stop();  // nothing is received into the application's memory any more
      landings->drop_kept();
    }
    // The sink comes before the waiters, so that callers that return after it find its final state.
    if (!closing) sink.on_lost(why);
    lock.lock();
  }
  if (landings != nullptr) landings->release();
  while (first != nullptr) {
    Waiter& waiter = *first.load();
    unlink(waiter);
    waiter.status = why;
    waiter.done = true;
    waiter.notify();
  }
}

// --- the public face ---

Channel::Channel(std::unique_ptr<transport::Transport> transport, NoticeSink& sink,
                 ChannelOptions options, std::unique_ptr<transport::Transport> bulk) {
  auto event = EventFd::create();
  if (!event.ok()) log::error("{}", event.status().message());
  FARGPU_CHECK(event.ok());
  impl_ = std::make_unique<Impl>(std::move(transport), sink, options, std::move(*event),
                                 std::move(bulk));
}

Channel::~Channel() {
  // A forked child has no service thread to join and no claim on the locks: it leaves the memory
  // alone.
  if (impl_ && impl_->abandoned) (void)impl_.release();
}

Status Channel::ping(Deadline deadline) {
  Reply reply;
  return ask(wire::kPing, reply, deadline);
}

bool Channel::lost() const {
  return impl_->abandoned || impl_->lost.load(std::memory_order_acquire);
}

Status Channel::why_lost() const { return lost() ? impl_->lost_status() : Status(); }

uint64_t Channel::frames_sent() const {
  const uint32_t next = impl_->next_sequence.load(std::memory_order_acquire);
  return impl_->sequence_wraps.load(std::memory_order_relaxed) << 32 | next;
}

uint64_t Channel::meetings() const {
  return impl_->send_mutex.waits() + impl_->answers_met.load(std::memory_order_relaxed);
}

void Channel::close(Deadline deadline) {
  constexpr auto kLongestStop = std::chrono::seconds(1);
  if (lost()) return;
  impl_->closing = true;
  if (!impl_->send_bye(deadline).ok()) deadline = Clock::now();
  // The server reads everything before the Bye, then closes its end.
  while (!lost() && Clock::now() < deadline) {
    std::unique_lock lock(impl_->wait_mutex);
    if (impl_->try_lease(Impl::Reader::kCaller)) {
      impl_->read(lock, nullptr, deadline);
    } else {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  impl_->end_session(Status(StatusCode::kLost, "the session was closed"));
  // The thread that reads it hears of the end, unless the program has closed the descriptors that
  // it sleeps on.
  if (impl_->landings != nullptr) impl_->landings->wait_for_stop(Clock::now() + kLongestStop);
}

void Channel::abandon_after_fork() {
  impl_->abandoned = true;
  impl_->transport->abandon_after_fork();
  if (impl_->bulk != nullptr) impl_->bulk->abandon_after_fork();
  impl_->kick_event.reset();
}

bool Channel::read_until(const std::function<bool()>& seen, Deadline deadline) {
  constexpr auto kLookAgain = std::chrono::microseconds(50),
                 kLongest = std::chrono::microseconds(1000);
  auto pause = kLookAgain;
  std::unique_lock lock(impl_->wait_mutex, std::defer_lock);
  impl_->begin_wait();
  bool there = seen();
  const bool counted = !there && link_times::counted();
  const uint64_t begun = counted ? link_times::begin_wait() : 0;
  if (!there) count_wait();
  while (!there && !lost() && Clock::now() < deadline) {
    if (impl_->try_lease(Impl::Reader::kCaller)) {
      if (seen()) {  // the last lease holder received it
        lock.lock();
        impl_->give_back();
      } else {
        impl_->read(lock, nullptr, deadline);
      }
      impl_->notify_first();
      lock.unlock();
    } else {
      std::this_thread::sleep_for(pause);  // the lease holder receives it or gives the lease back
      pause = std::min(pause + pause / 8, kLongest);
    }
    there = seen();
  }
  if (counted && there) link_times::saw_notice(impl_->link_use, begun);
  lock.lock();
  impl_->hand_over();
  return there;
}

void Channel::await_notices() {
  std::lock_guard lock(impl_->wait_mutex);
  if (impl_->service_sleep == Impl::ServiceSleep::kNap) impl_->kick();
}

void Channel::see_sent() const { (void)impl_->next_sequence.load(std::memory_order_acquire); }

transport::Transport& Channel::transport() { return *impl_->transport; }

}  // namespace fargpu::rpc
