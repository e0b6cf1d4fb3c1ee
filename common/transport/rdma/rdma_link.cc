#include "common/transport/rdma/rdma_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "common/base/descriptors.h"

namespace fargpu::transport {
namespace {

constexpr unsigned kReservedSends = 64;  // of kRdmaSendDepth, for credits, probes and the bye
constexpr unsigned kSignalEvery = 16;
constexpr unsigned kReceives = kRdmaMessages + kRdmaControlReceives;

// The immediate of a control message: what it is in the highest byte, a number below.
constexpr uint32_t kCredit = 1u << 24, kBye = 2u << 24, kNumberMask = (1u << 24) - 1;

}  // namespace

RdmaLink::RdmaLink(std::shared_ptr<RdmaDomain> domain, const Options& options, EventFd sender_event,
                   EventFd receiver_event)
    : domain_(std::move(domain)),
      options_(options),
      events_{std::move(sender_event), std::move(receiver_event)} {}

Result<std::unique_ptr<RdmaLink>> RdmaLink::create(std::shared_ptr<RdmaDomain> domain,
                                                   const Options& options) {
  FARGPU_ASSIGN_OR_RETURN(EventFd sender_event, EventFd::create());
  FARGPU_ASSIGN_OR_RETURN(EventFd receiver_event, EventFd::create());
  std::unique_ptr<RdmaLink> made(
      new RdmaLink(std::move(domain), options, std::move(sender_event), std::move(receiver_event)));
  FARGPU_RETURN_IF_ERROR(made->make_queues());
  if (!made->post_receives(kReceives)) return verbs_error("cannot post receives", errno);
  return made;
}

Status RdmaLink::make_queues() {
  const descriptors::StandardTaken taken;
  ibv_context* context = domain_->context();
  channel_ = rdma().create_comp_channel(context);
  if (channel_ == nullptr) return verbs_error("cannot make a completion channel", errno);
  channel_->fd = descriptors::place(Fd(channel_->fd)).release();
  ::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  send_queue_ = rdma().create_cq(context, kRdmaSendDepth, nullptr, channel_, 0);
  receive_queue_ = rdma().create_cq(context, kReceives, nullptr, channel_, 0);
  if (send_queue_ == nullptr || receive_queue_ == nullptr)
    return verbs_error("cannot make a completion queue", errno);

  ibv_device_attr device{};
  if (const int error = rdma().query_device(context, &device); error != 0)
    return verbs_error("cannot ask the RDMA device", error);
  max_sge_ = static_cast<uint32_t>(std::clamp(device.max_sge, 1, 8));
  // How many bytes an adapter takes inline cannot be queried, only tried.
  int error = 0;
  for (uint32_t inline_bytes : {256u, 128u, 64u, 0u}) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = send_queue_;
    wanted.recv_cq = receive_queue_;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {kRdmaSendDepth, kReceives, max_sge_, 1, inline_bytes};
    if (rdma().cm_create_qp(domain_->id(), domain_->pd(), &wanted) == 0) {
      pair_ = domain_->id()->qp;
      max_inline_ = wanted.cap.max_inline_data;
      return Status();
    }
    error = errno;
  }
  return verbs_error("cannot make a queue pair", error);
}

RdmaLink::~RdmaLink() {
  if (domain_->abandoned()) return;
  if (pair_ != nullptr) rdma().cm_destroy_qp(domain_->id());
  if (send_queue_ != nullptr) rdma().destroy_cq(send_queue_);
  if (receive_queue_ != nullptr) rdma().destroy_cq(receive_queue_);
  if (channel_ != nullptr) rdma().destroy_comp_channel(channel_);
}

// --- posting ---

Result<uint64_t> RdmaLink::post(ibv_send_wr& request, bool signal, bool reserved) {
  std::lock_guard lock(post_lock_);
  return post_locked(request, signal, reserved, 0);
}

Result<uint64_t> RdmaLink::post_message(ibv_send_wr& request, uint64_t bytes, bool signal) {
  std::lock_guard lock(post_lock_);
  return post_locked(request, signal, false, bytes);
}

Result<uint64_t> RdmaLink::post_locked(ibv_send_wr& request, bool signal, bool reserved,
                                       uint64_t message_bytes) {
  if (lost() || stop_posting_) return lost_status();
  const uint64_t limit = reserved ? kRdmaSendDepth : kRdmaSendDepth - kReservedSends;
  if (posted_ - completed() >= limit) return uint64_t{0};
  if (message_bytes > 0) {
    // Before it is posted: the peer's credit for it may be seen by another thread at once.
    const uint64_t messages = sent_messages_.load(std::memory_order_relaxed);
    sent_bytes_ += message_bytes;
    sent_ends_[messages % kRdmaMessages] = sent_bytes_;
    sent_messages_.store(messages + 1, std::memory_order_release);
    request.imm_data = htonl(static_cast<uint32_t>(message_bytes));
  }
  request.wr_id = posted_ + 1;
  if (signal || unsignalled_ + 1 >= kSignalEvery) {
    request.send_flags |= IBV_SEND_SIGNALED;
    unsignalled_ = 0;
  } else {
    ++unsignalled_;
  }
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(pair_, &request, &refused); error != 0) {
    return lose(
        Status(StatusCode::kLost,
               system_error("connection lost: cannot post to the adapter", error).message()));
  }
  return ++posted_;
}

bool RdmaLink::post_receives(unsigned count) {
  constexpr unsigned kChain = 32;
  ibv_recv_wr chain[kChain];
  while (count > 0) {
    const unsigned here = std::min(count, kChain);
    for (unsigned i = 0; i < here; ++i) {
      chain[i] = ibv_recv_wr{};
      chain[i].next = i + 1 < here ? &chain[i + 1] : nullptr;
    }
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_recv(pair_, chain, &refused); error != 0) {
      errno = error;
      return false;
    }
    count -= here;
  }
  return true;
}

// --- the two streams ---

uint64_t RdmaLink::room_in_ring() const {
  const uint64_t credited = credited_messages_.load(std::memory_order_acquire);
  const uint64_t under_way = sent_messages_.load(std::memory_order_relaxed) - credited;
  // One less than the peer allows, so that the end of the last credited message stays in
  // sent_ends_.
  if (under_way + 1 >= std::min(peer_ring_.messages, kRdmaMessages)) return 0;
  const uint64_t taken = credited == 0 ? 0 : sent_ends_[(credited - 1) % kRdmaMessages];
  return peer_ring_.bytes - (sent_bytes_ - taken);
}

void RdmaLink::consume(uint64_t bytes) {
  const uint64_t consumed = consumed_bytes() + bytes;
  consumed_bytes_.store(consumed, std::memory_order_relaxed);
  const uint64_t arrived = arrived_messages_.load(std::memory_order_acquire);
  while (consumed_messages_ < arrived &&
         arrived_ends_[consumed_messages_ % kRdmaMessages] <= consumed) {
    consumed_end_ = arrived_ends_[consumed_messages_ % kRdmaMessages];
    ++consumed_messages_;
  }
}

void RdmaLink::give_credit() {
  const uint64_t given = credit_messages_given_.load(std::memory_order_relaxed);
  const uint64_t messages = consumed_messages_ - given;
  const uint64_t bytes = consumed_end_ - credit_bytes_given_.load(std::memory_order_relaxed);
  if (messages < kRdmaMessages / 4 && bytes < options_.ring_bytes / 4) return;
  if (!post_receives(static_cast<unsigned>(consumed_messages_ - renewed_messages_))) {
    (void)lose(system_error("connection lost: cannot post receives", errno));
    return;
  }
  renewed_messages_ = consumed_messages_;
  // Before it is posted: the peer may use the room at once.
  credit_bytes_given_.store(consumed_end_, std::memory_order_release);
  credit_messages_given_.store(consumed_messages_, std::memory_order_release);
  ibv_send_wr credit{};
  credit.opcode = IBV_WR_SEND_WITH_IMM;
  credit.imm_data = htonl(kCredit | static_cast<uint32_t>(messages));
  for (;;) {
    auto posted = post(credit, false, true);
    if (!posted.ok() || *posted != 0) return;
    poll(Role::kReceiver, true);  // posted requests complete or fail soon
  }
}

// --- completions ---

void RdmaLink::poll(Role role, bool must, bool sends) {
  std::unique_lock lock(poll_lock_, std::defer_lock);
  if (must) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return;
  }
  if (domain_->abandoned()) return;
  bool arrived = false, freed = false;
  Status problem;
  // Keep the error that names the cause, not the ones that say that later requests are cancelled.
  const auto take_problem = [&](const ibv_wc& completion) {
    if (problem.ok() || completion.status != IBV_WC_WR_FLUSH_ERR)
      problem = completion_error(completion);
  };
  ibv_wc completions[16];
  for (int count; (count = ibv_poll_cq(receive_queue_, 16, completions)) > 0;) {
    for (const ibv_wc& completion : std::span(completions, static_cast<size_t>(count))) {
      if (completion.status != IBV_WC_SUCCESS) {
        take_problem(completion);
      } else if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        arrived = true;
        on_message(ntohl(completion.imm_data));
      } else {
        freed = true;
        // Without an immediate the field holds anything.
        const bool told = (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
        on_control(told ? ntohl(completion.imm_data) : 0);
      }
    }
    if (count < 16) break;
  }
  if (must || role != Role::kReceiver) sends = true;
  for (int count; sends && (count = ibv_poll_cq(send_queue_, 16, completions)) > 0;) {
    for (const ibv_wc& completion : std::span(completions, static_cast<size_t>(count))) {
      if (completion.status != IBV_WC_SUCCESS) {
        take_problem(completion);
      } else {
        freed = true;
        completed_.store(completion.wr_id, std::memory_order_release);
      }
    }
    if (count < 16) break;
  }
  lock.unlock();
  if (!problem.ok()) (void)lose(std::move(problem), true);
  // A thread sets its flag before it polls here for the last time, under the lock.
  if (arrived && role != Role::kReceiver && (asleep(Role::kReceiver) || watched_)) nudge_receiver();
  if (freed && role != Role::kSender && asleep(Role::kSender)) event(Role::kSender).signal();
}

void RdmaLink::on_message(uint32_t bytes) {
  const uint64_t messages = arrived_messages_.load(std::memory_order_relaxed);
  const uint64_t end = arrived_bytes_.load(std::memory_order_relaxed) + bytes;
  if (messages - credit_messages_given_.load(std::memory_order_acquire) >= kRdmaMessages ||
      bytes == 0 ||
      end - credit_bytes_given_.load(std::memory_order_acquire) > options_.ring_bytes) {
    (void)lose(Status(StatusCode::kProtocol,
                      fmt::format("the peer sent a message of {} bytes without a credit", bytes)));
    return;
  }
  arrived_ends_[messages % kRdmaMessages] = end;
  arrived_messages_.store(messages + 1, std::memory_order_release);
  arrived_bytes_.store(end, std::memory_order_release);
}

void RdmaLink::on_control(uint32_t value) {
  if (!post_receives(1)) {
    (void)lose(system_error("connection lost: cannot post a receive", errno), true);
    return;
  }
  const uint32_t number = value & kNumberMask;
  switch (value & ~kNumberMask) {
    case kCredit: {
      const uint64_t credited = credited_messages_.load(std::memory_order_relaxed);
      if (number > sent_messages_.load(std::memory_order_acquire) - credited) {
        (void)lose(Status(StatusCode::kProtocol,
                          fmt::format("the peer took {} messages that were not sent", number)));
        return;
      }
      credited_messages_.store(credited + number, std::memory_order_release);
      return;
    }
    case kBye:
      (void)lose(Status(StatusCode::kLost, "the peer closed the connection"), true);
      return;
    default:
      (void)lose(Status(StatusCode::kProtocol,
                        fmt::format("the peer sent an unknown control message {:#x}", value)));
  }
}

Status RdmaLink::completion_error(const ibv_wc& completion) const {
  const char* why = nullptr;
  switch (completion.status) {
    case IBV_WC_RETRY_EXC_ERR:
      why = "the peer's adapter does not answer (retries exceeded)";
      break;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      why = "the peer takes no messages (receiver not ready)";
      break;
    case IBV_WC_REM_ACCESS_ERR:
      why = "the peer's adapter refused access to its memory (wrong key or range)";
      break;
    case IBV_WC_WR_FLUSH_ERR:
      why = "the queue pair was shut down";
      break;
    default:
      why = rdma().wc_status_str(completion.status);
  }
  return Status(StatusCode::kLost, fmt::format("connection lost: {}", why));
}

void RdmaLink::close() {
  if (closing_.exchange(true)) return;
  if (!lost() && connected_) {
    uint64_t last = 0;
    {
      std::lock_guard lock(post_lock_);
      ibv_send_wr bye{};
      bye.opcode = IBV_WR_SEND_WITH_IMM;
      bye.imm_data = htonl(kBye);
      if (auto posted = post_locked(bye, true, true, 0); posted.ok()) last = *posted;
      stop_posting_ = true;
    }
    // Disconnecting discards what is still in the send queue. A peer that is alive takes it at
    // once.
    const auto deadline =
        Clock::now() + std::min(options_.lost_after / 5, std::chrono::milliseconds(1000));
    while (last != 0 && completed() < last && !lost() && Clock::now() < deadline) {
      poll(Role::kNobody, true);
      relax();
    }
  }
  (void)lose(Status(StatusCode::kLost, "the connection was closed on this side"));
}

}  // namespace fargpu::transport
