// The sending side of Channel: one call from its slot to its reply.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/rpc/answers_awaited.h"
#include "common/rpc/channel.h"
#include "common/rpc/channel_impl.h"
#include "common/rpc/frame_sent.h"
#include "common/rpc/link_times.h"
#include "common/rpc/thread_calls.h"
#include "common/transport/descriptor_passing.h"
#include "common/transport/poll.h"
#include "common/transport/room_waits.h"
#include "common/wire/control.h"

namespace fargpu::rpc {
namespace {

constexpr size_t kHeaderBytes = sizeof(wire::FrameHeader);
constexpr size_t kFlushBytes = 32 << 10;  // this much unflushed goes out at once
// Between two frames with so much bulk, others get this long to send what they have.
constexpr size_t kLongBulk = 256 << 10;
constexpr auto kLongestPass = std::chrono::microseconds(1000);

size_t total(std::span<const Bytes> pieces) {
  size_t bytes = 0;
  for (const Bytes& piece : pieces) bytes += piece.size();
  return bytes;
}

}  // namespace

uint32_t Channel::Impl::take_sequence() {
  const uint32_t sequence = next_sequence.load(std::memory_order_relaxed);
  const uint32_t following = sequence + 1;
  if (following == 0) [[unlikely]]
    sequence_wraps.store(sequence_wraps.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
  next_sequence.store(following == 0 ? 1 : following,  // 0 belongs to notices
                      std::memory_order_release);
  return sequence;
}

Status Channel::Impl::flush_now(Deadline deadline) {
  Status status = transport->flush(deadline);
  if (status.code() == StatusCode::kTimeout) leave_to_service(Clock::now());
  if (!status.ok()) return status;
  unflushed_bytes = 0;
  if (unflushed_since.load(std::memory_order_relaxed) != 0) unflushed_since.store(0);
  return status;
}

void Channel::Impl::leave_to_service(Clock::time_point now) {
  if (unflushed_since.load(std::memory_order_relaxed) != 0) return;
  unflushed_since.store(now.time_since_epoch().count());
  if (!flush_armed.load()) kick();
}

// The first frame after a pause is flushed at once: the server is probably idle. Frames that follow
// closely are batched. Where the service thread sends aside, others leave them to it for twice as
// long.
void Channel::Impl::flush_by_clock(size_t frame_bytes) {
  const auto now = Clock::now();
  const bool others_wait = unflushed_since.load(std::memory_order_relaxed) != 0;
  const auto delay = sends_aside && others_wait ? 2 * kFlushDelay : kFlushDelay;
  unflushed_bytes += frame_bytes;
  if (now - last_flush >= delay || unflushed_bytes >= kFlushBytes) {
    // Do not wait for a full socket here: reserve() waits, once the send area is full.
    const Status status = flush_now(now);
    last_flush = now;
    if (status.code() == StatusCode::kTimeout) unflushed_bytes = 0;
    return;
  }
  leave_to_service(now);
}

// The usual case is the first line: there is room. Else liveness is watched while it waits.
Result<std::span<std::byte>> Channel::Impl::reserve(size_t bytes) {
  auto slot = transport->reserve(bytes, Deadline());
  if (slot.ok() || slot.status().code() != StatusCode::kTimeout) return slot;
  const WaitingSender waits(*this);
  count_wait();
  return transport->reserve(bytes, kNoDeadline);
}

Status Channel::Impl::commit(const wire::FrameHeader& header, size_t bytes,
                             std::span<const Bytes> bulk) {
  if (link_times::counted()) [[unlikely]] {
    link_times::sent(link_use, bytes, total(bulk));
    if (options.frames != nullptr) options.frames->sends(header);
  }
  if (bulk.empty() && bytes <= kMostBytesAlone) return transport->commit(bytes, bulk, kNoDeadline);
  const WaitingSender waits(*this);
  const uint64_t before = transport::room_waits;
  Status status = transport->commit(bytes, bulk, kNoDeadline);
  if (transport::room_waits != before) count_wait();
  return status;
}

Status Channel::Impl::sent(SendLock& lock, Status committed, size_t frame_bytes) {
  count_sent();
  if (committed.ok()) flush_or_postpone(frame_bytes);
  lock.unlock();
  if (committed.code() == StatusCode::kLost) survives(committed);
  return committed;
}

// The owner of send_mutex may be waiting for a server that takes nothing.
Status Channel::Impl::lock_by(SendLock& lock, Deadline deadline) {
  constexpr auto kLookAgain = std::chrono::microseconds(20),
                 kLongest = std::chrono::microseconds(1000);
  for (auto pause = kLookAgain; !lock.try_lock(); pause = std::min(2 * pause, kLongest)) {
    if (lost) return lost_status();
    if (Clock::now() >= deadline) return transport::peer_is_busy();
    std::this_thread::sleep_for(pause);
  }
  return Status();
}

Status Channel::Impl::send_bye(Deadline deadline) {
  SendLock lock(send_mutex, std::defer_lock);
  FARGPU_RETURN_IF_ERROR(lock_by(lock, deadline));
  FARGPU_ASSIGN_OR_RETURN(const auto slot, transport->reserve(kHeaderBytes, deadline));
  wire::FrameHeader header;
  header.opcode = wire::kBye;
  header.sequence = take_sequence();
  std::memcpy(slot.data(), &header, kHeaderBytes);
  FARGPU_RETURN_IF_ERROR(transport->commit(kHeaderBytes, {}, deadline));
  return flush_now(deadline);
}

struct Channel::Call::State {
  State(Channel& channel, uint16_t opcode, uint16_t context, size_t body_bytes_bound);
  // Writes the header into the slot and returns the frame's size.
  size_t finish(uint16_t flags, uint64_t bulk_bytes);
  Status commit(uint16_t flags, std::span<const Bytes> bulk);
  // A body instead of what a builder makes.
  void put(Bytes body) {
    if (body.empty() || slot.empty()) return;
    std::memcpy(slot.data() + kHeaderBytes, body.data(), body.size());
    prepared_bytes = body.size();
  }
  Status submit_and_wait(Reply& reply, std::span<const Bytes> bulk, std::span<std::byte> bulk_out,
                         Deadline deadline);

  Impl& impl;
  Impl::SendLock lock;  // on send_mutex, until the frame is committed
  Status status;
  wire::FrameHeader header;
  std::span<std::byte> slot;
  size_t body_bound;
  size_t prepared_bytes = 0;  // of a body that was put into the slot without a builder
  // Replaces the slot when the transport gave none, so that building still works.
  std::unique_ptr<std::byte[]> scratch;
  std::optional<wire::SlotMessageBuilder> builder;
  size_t frame_bytes = 0;
};

Channel::Call::State::State(Channel& channel, uint16_t opcode, uint16_t context,
                            size_t body_bytes_bound)
    : impl(*channel.impl_), body_bound(wire::whole_words(body_bytes_bound)) {
  header.opcode = opcode;
  header.context = context;
  if (channel.lost()) {
    status = impl.lost_status();
    return;
  }
  lock = std::unique_lock(impl.send_mutex);
  auto reserved = impl.reserve(kHeaderBytes + body_bound);
  if (reserved.ok()) {
    slot = *reserved;
    return;
  }
  status = reserved.status();
  lock.unlock();
  if (status.code() == StatusCode::kLost) impl.survives(status);
}

Channel::Call::Call(Channel& channel, uint16_t opcode, uint16_t context, size_t body_bytes_bound) {
  static_assert(sizeof(State) <= sizeof storage_ && alignof(State) <= 16);
  new (storage_) State(channel, opcode, context, body_bytes_bound);
}

Channel::Call::~Call() { state().~State(); }

Channel::Call::State& Channel::Call::state() {
  return *std::launder(reinterpret_cast<State*>(storage_));
}

capnp::MessageBuilder& Channel::Call::builder() {
  State& call = state();
  if (!call.builder) {
    if (call.slot.empty()) {
      call.scratch = std::make_unique_for_overwrite<std::byte[]>(call.body_bound);
      call.builder.emplace(std::span(call.scratch.get(), call.body_bound));
    } else {
      call.builder.emplace(call.slot.subspan(kHeaderBytes));
    }
  }
  return *call.builder;
}

size_t Channel::Call::State::finish(uint16_t flags, uint64_t bulk_bytes) {
  const size_t body_bytes = builder ? builder->used_bytes() : prepared_bytes;
  header.flags = flags;
  header.body_bytes = static_cast<uint32_t>(body_bytes);
  header.bulk_bytes = bulk_bytes;
  header.sequence = impl.take_sequence();
  std::memcpy(slot.data(), &header, kHeaderBytes);
  return kHeaderBytes + body_bytes;
}

Status Channel::Call::State::commit(uint16_t flags, std::span<const Bytes> bulk) {
  frame_bytes = finish(flags, total(bulk));
  return impl.commit(header, frame_bytes, bulk);
}

Status Channel::Call::send(std::span<const Bytes> bulk, int32_t* result) {
  State& call = state();
  if (!call.status.ok()) return call.status;
  // An argument that is empty this time.
  if (bulk.size() == 1 && bulk.front().empty()) bulk = {};
  if (call.impl.options.sync_all || AnswersAwaited::here()) {
    Reply reply;
    Status status = call.submit_and_wait(reply, bulk, {}, kNoDeadline);
    if (result != nullptr) {
      *result = reply.result;
    } else if (status.ok() && reply.result != 0) {
      call.impl.sink.on_async_error(call.header.opcode, call.header.sequence, call.header.context,
                                    reply.result);
    }
    return status;
  }
  if (result != nullptr) *result = 0;
  Status status = call.commit(0, bulk);
  status = call.impl.sent(call.lock, std::move(status), call.frame_bytes);
  if (total(bulk) >= kLongBulk) call.impl.send_mutex.let_pass(kLongestPass);
  return status;
}

Status Channel::Impl::try_post(const wire::FrameHeader& header, Bytes body) {
  if (link_times::counted()) [[unlikely]] {
    link_times::sent(link_use, kHeaderBytes + body.size(), 0);
    if (options.frames != nullptr) options.frames->sends(header);
  }
  return transport->post(header, body);
}

// Liveness is watched while it waits.
Status Channel::Impl::post_late(const wire::FrameHeader& header, Bytes body, Deadline deadline) {
  const WaitingSender waits(*this);
  count_wait();
  const size_t bytes = kHeaderBytes + body.size();
  FARGPU_ASSIGN_OR_RETURN(const auto slot, transport->reserve(bytes, deadline));
  std::memcpy(slot.data(), &header, kHeaderBytes);
  if (!body.empty()) std::memcpy(slot.data() + kHeaderBytes, body.data(), body.size());
  return transport->commit(bytes, {}, kNoDeadline);
}

// What Call does in two steps, without what only builders and answers need.
Status Channel::send_body(uint16_t opcode, uint16_t context, Bytes body, int32_t* result) {
  Impl& impl = *impl_;
  if (impl.options.sync_all || AnswersAwaited::here() || lost() || body.size() > impl.most_posted)
      [[unlikely]]
    return send_built(opcode, context, body, result);
  if (result != nullptr) *result = 0;
  wire::FrameHeader header;
  header.opcode = opcode;
  header.context = context;
  header.body_bytes = static_cast<uint32_t>(body.size());
  std::unique_lock lock(impl.send_mutex);
  header.sequence = impl.take_sequence();
  Status posted = impl.try_post(header, body);
  if (!posted.ok()) [[unlikely]] {
    if (posted.code() == StatusCode::kTimeout) posted = impl.post_late(header, body, kNoDeadline);
    return impl.sent(lock, std::move(posted), kHeaderBytes + body.size());
  }
  count_sent();
  impl.flush_or_postpone(kHeaderBytes + body.size());
  return posted;
}

Status Channel::send_built(uint16_t opcode, uint16_t context, Bytes body, int32_t* result) {
  Call call(*this, opcode, context, body.size());
  call.state().put(body);
  return call.send({}, result);
}

Status Channel::call_body(uint16_t opcode, uint16_t context, Bytes body, Reply& reply,
                          const transport::WatchedWord* early) {
  Impl& impl = *impl_;
  if (lost() || body.size() > impl.most_posted) [[unlikely]] {
    Call call(*this, opcode, context, body.size());
    call.state().put(body);
    return call.call(reply);
  }
  wire::FrameHeader header;
  header.opcode = opcode;
  header.context = context;
  header.flags = wire::kWantReply;
  header.body_bytes = static_cast<uint32_t>(body.size());
  std::unique_lock lock(impl.send_mutex);
  header.sequence = impl.take_sequence();
  Impl::Waiter waiter(impl, header, reply, {});
  waiter.early = early;
  return impl.exchange(lock, header, true, waiter, kNoDeadline, [&](bool wait) {
    return wait ? impl.post_late(header, body, kNoDeadline) : impl.try_post(header, body);
  });
}

Status Channel::Impl::wait_counted(SendLock& lock, const wire::FrameHeader& header, Waiter& waiter,
                                   bool alone, Deadline deadline) {
  const LinkMark mark = link_use.last;
  waiter.early = nullptr;  // the reply is counted
  lock.unlock();
  Status status = wait_for(waiter, alone, deadline);
  if (status.ok()) count_answer(header, mark, waiter.reply);
  return status;
}

void Channel::Impl::count_answer(const wire::FrameHeader& header, const LinkMark& mark,
                                 const Reply& reply) {
  if (options.frames != nullptr) options.frames->receives(header);
  link_times::answered(link_use, mark, kHeaderBytes + reply.body().size(), reply.bulk_bytes,
                       reply.result == kNotReady);
}

template <typename Commit>
Status Channel::Impl::exchange(SendLock& lock, const wire::FrameHeader& header, bool small,
                               Waiter& waiter, Deadline deadline, Commit commit) {
  count_wait();
  // The reply may come as soon as the frame leaves: the lease holder must find the waiter then.
  bool alone = small && try_lease(Reader::kCaller);
  if (small && !alone && reader == Reader::kCaller) ++answers_met;
  if (!alone) add(waiter);
  Status sent = commit(false);
  if (sent.code() == StatusCode::kTimeout) [[unlikely]] {
    if (std::exchange(alone, false)) no_longer_alone(&waiter);  // as below
    sent = commit(true);
  }
  const bool committed = sent.ok();
  if (committed) {
    FrameSent::tell();
    // The lease is not kept across a wait.
    sent = flush_now(alone ? Deadline() : deadline);
    if (alone && sent.code() == StatusCode::kTimeout) {
      no_longer_alone(&waiter);
      alone = false;
      sent = flush_now(deadline);
    }
    if (!visible_at_commit) last_flush = Clock::now();
  }
  if (sent.ok() && link_times::counted()) [[unlikely]]
    return wait_counted(lock, header, waiter, alone, deadline);
  lock.unlock();
  if (sent.ok() || (committed && sent.code() == StatusCode::kTimeout))
    return wait_for(waiter, alone, deadline);
  if (sent.code() == StatusCode::kLost) survives(sent);
  if (alone) no_longer_alone(nullptr);
  if (alone || try_remove(waiter)) return sent;
  return wait(waiter, kNoDeadline);
}

struct Channel::Later::Waiting {
  Waiting(Impl& its_impl, const wire::FrameHeader& its_header, Reply& reply,
          std::span<std::byte> bulk_out)
      : impl(its_impl), header(its_header), waiter(its_impl, header, reply, bulk_out) {}
  Impl& impl;
  const wire::FrameHeader header;
  Impl::Waiter waiter;
  std::optional<LinkMark> counted;
};

Channel::Later::Later() = default;
Channel::Later::~Later() { (void)wait(); }

Status Channel::Later::wait() {
  if (waiting_ == nullptr) return Status();
  const std::unique_ptr<Waiting> waiting = std::move(waiting_);
  {
    std::lock_guard lock(waiting->impl.wait_mutex);
    waiting->waiter.attended = true;
  }
  Status status = waiting->impl.wait(waiting->waiter, kNoDeadline);
  if (waiting->counted && status.ok())
    waiting->impl.count_answer(waiting->header, *waiting->counted, waiting->waiter.reply);
  return status;
}

bool Channel::call_later(uint16_t opcode, uint16_t context, Bytes body, Reply& reply,
                         std::span<std::byte> bulk_out, Later& later) {
  Impl& impl = *impl_;
  if (lost() || body.size() > impl.most_posted) return false;
  wire::FrameHeader header;
  header.opcode = opcode;
  header.context = context;
  header.flags = wire::kWantReply;
  header.body_bytes = static_cast<uint32_t>(body.size());
  Impl::SendLock lock(impl.send_mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  header.sequence = impl.take_sequence();
  auto waiting = std::make_unique<Later::Waiting>(impl, header, reply, bulk_out);
  waiting->waiter.attended = false;
  impl.add(waiting->waiter);
  const Status sent = impl.try_post(header, body);
  if (!sent.ok()) {
    // No other frame gets its number: an answer to that might find this waiter.
    lock.unlock();
    if (sent.code() == StatusCode::kLost) impl.survives(sent);
    if (!impl.try_remove(waiting->waiter)) (void)impl.wait(waiting->waiter, kNoDeadline);
    return false;
  }
  count_wait();
  if (link_times::counted()) waiting->counted = impl.link_use.last;
  // What the system does not take now leaves when the service thread flushes.
  impl.flush_by_clock(kHeaderBytes + body.size());
  later.waiting_ = std::move(waiting);
  return true;
}

Status Channel::Call::State::submit_and_wait(Reply& reply, std::span<const Bytes> bulk,
                                             std::span<std::byte> bulk_out, Deadline deadline) {
  frame_bytes = finish(wire::kWantReply, total(bulk));
  const bool small = frame_bytes <= kMostBytesAlone && bulk.empty() && bulk_out.empty();
  Impl::Waiter waiter(impl, header, reply, bulk_out);
  return impl.exchange(lock, header, small, waiter, deadline,
                       [&](bool) { return impl.commit(header, frame_bytes, bulk); });
}

Status Channel::Call::call(Reply& reply, std::span<const Bytes> bulk,
                           std::span<std::byte> bulk_out) {
  State& call = state();
  if (!call.status.ok()) return call.status;
  return call.submit_and_wait(reply, bulk, bulk_out, kNoDeadline);
}

Status Channel::Call::call_until(Reply& reply, Deadline deadline) {
  State& call = state();
  if (!call.status.ok()) return call.status;
  return call.submit_and_wait(reply, {}, {}, deadline);
}

Status Channel::ask(uint16_t control_opcode, Reply& reply, Deadline deadline) {
  Impl& impl = *impl_;
  if (lost()) return impl.lost_status();
  wire::FrameHeader header;
  header.opcode = control_opcode;
  header.flags = wire::kWantReply;
  Impl::SendLock lock(impl.send_mutex, std::defer_lock);
  FARGPU_RETURN_IF_ERROR(impl.lock_by(lock, deadline));
  header.sequence = impl.take_sequence();
  Impl::Waiter waiter(impl, header, reply, {});
  return impl.exchange(lock, header, true, waiter, deadline, [&](bool wait) {
    return wait ? impl.post_late(header, {}, deadline) : impl.try_post(header, {});
  });
}

Status Channel::flush() {
  if (lost()) return impl_->lost_status();
  Status status;
  {
    std::lock_guard lock(impl_->send_mutex);
    const auto now = Clock::now();
    status = impl_->flush_now(now);
    impl_->last_flush = now;
    // What cannot be sent without waiting is left to the service thread.
    if (status.code() == StatusCode::kTimeout) return Status();
  }
  if (status.code() == StatusCode::kLost) impl_->survives(status);
  return status;
}

Status Channel::pass_descriptor(uint64_t number, int descriptor) {
  if (lost()) return impl_->lost_status();
  transport::DescriptorPassing* const passing = impl_->transport->descriptor_passing();
  if (passing == nullptr)
    return {StatusCode::kUnsupported, "this connection passes no descriptors"};
  Status status;
  {
    std::lock_guard lock(impl_->send_mutex);
    status = passing->send(number, descriptor);
  }
  if (status.code() == StatusCode::kLost) impl_->survives(status);
  return status;
}

}  // namespace fargpu::rpc
