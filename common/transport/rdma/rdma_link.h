// The queue pair of one connection, and the parts that both directions share: posting, completions,
// waiting, loss.
//
// A message is one RDMA write with immediate: it writes bytes of the stream into the peer's ring,
// and the immediate is their number. Only the completion at the receiver says that the bytes have
// arrived; memory that the peer may write is never polled. Each message uses up one posted receive.
// The receiver returns receives in batches, together with the room in its ring, as a credit: an
// empty send whose immediate is the number of messages that it has taken. Only some sends ask for a
// completion.
//
// Any thread may post, poll and wait. A waiting thread has one of two roles; each role has at most
// one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/base/fd.h"
#include "common/host/try_lock.h"
#include "common/transport/loss.h"
#include "common/transport/poll.h"
#include "common/transport/rdma/rdma_domain.h"
#include "common/transport/spin.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

inline constexpr unsigned kRdmaMessages = 256;  // messages that a peer may have under way to us
// beyond these: credits, bye; at most 8 + 1 can be under way
inline constexpr unsigned kRdmaControlReceives = 32;
inline constexpr unsigned kRdmaSendDepth = 512;

// A peer's description of its ring; sent in rdma_cm's private data.
struct RdmaRing {
  uint64_t address = 0;
  uint32_t key = 0;
  uint32_t bytes = 0;  // a power of two
  uint32_t messages = 0;
  uint64_t offset(uint64_t position) const { return position & (bytes - 1); }
};

class RdmaLink {
 public:
  enum class Role { kSender, kReceiver, kNobody };
  struct Options {
    std::chrono::microseconds spin{0};
    std::chrono::milliseconds lost_after{5000};
    uint32_t ring_bytes = 0;
  };

  // Queue pair and completion queues; the receives are posted.
  static Result<std::unique_ptr<RdmaLink>> create(std::shared_ptr<RdmaDomain> domain,
                                                  const Options& options);
  ~RdmaLink();

  // Once connected. `bootstrap` may be invalid.
  Status connected(const RdmaRing& peer_ring, Fd bootstrap);
  const RdmaRing& peer_ring() const { return peer_ring_; }
  uint32_t max_inline() const { return max_inline_; }
  uint32_t max_sge() const { return max_sge_; }
  uint64_t max_message() const { return max_message_; }

  // --- posting (rdma_link.cc) ---
  // Numbers the request and posts it; the number, or 0 when the send queue has no room. `signal`:
  // the completion of this one will be awaited. Credits and probes may use entries that others may
  // not.
  Result<uint64_t> post(ibv_send_wr& request, bool signal, bool reserved = false);
  // The same for a request that is a message of so many bytes; there is room for it in the ring.
  Result<uint64_t> post_message(ibv_send_wr& request, uint64_t bytes, bool signal);
  // Every request up to this number is complete.
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }

  // --- the stream to the peer: one thread, the sender ---
  uint64_t room_in_ring() const;  // bytes that may be sent now; 0 also when no message may
  uint64_t sent_bytes() const { return sent_bytes_; }

  // --- the stream from the peer: one thread, the receiver ---
  uint64_t arrived_bytes() const { return arrived_bytes_.load(std::memory_order_acquire); }
  uint64_t consumed_bytes() const { return consumed_bytes_.load(std::memory_order_relaxed); }
  // `bytes` more have been copied out of the ring.
  void consume(uint64_t bytes);
  // Posts receives again and sends the credits, when enough messages have been taken. Cheap
  // otherwise.
  void give_credit();

  // --- completions (rdma_link.cc) ---
  // Handles completions. `must`: waits for another thread that is handling them, instead of leaving
  // them to it. The receiver need not look at send completions each time.
  void poll(Role role, bool must = false, bool sends = true);

  // --- waiting (rdma_link_wait.cc) ---
  // Waits until ready(), the deadline (kTimeout) or loss. ready() is called after each poll of the
  // queues. The receiver says whether it waits for send completions; the sender always may.
  template <typename Ready>
  Status wait(Role role, Deadline deadline, Ready ready, bool for_completions = false);
  // The same for any number of further threads. Nothing wakes them: they poll, less often as time
  // goes by.
  template <typename Ready>
  Status wait_by_polling(Deadline deadline, Ready ready);
  // Wakes the receiver's wait so that its ready() is called.
  void nudge_receiver() { event(Role::kReceiver).signal(); }
  void drain_nudges() { event(Role::kReceiver).drain(); }
  // For the receiver: makes its descriptor report later arrivals. False when something is there
  // already.
  bool arm_descriptor();
  // For the receiver, after arm_descriptor(): consumes the descriptor's report.
  void look_at_descriptor();
  int poll_descriptor() const { return poller_.get(); }

  // --- loss (rdma_link_wait.cc) ---
  bool lost() const { return loss_.happened(); }
  Status lost_status() const { return loss_.status(); }
  // Disconnects. The first reason is kept and returned unchanged; later calls return kLost.
  // `by_peer`: messages that have arrived may still be delivered.
  Status lose(Status why, bool by_peer = false);
  // Says good-bye and waits a moment until the peer has all that was posted; then lose().
  void close();
  // True after close() or an error of ours: messages that have arrived must not be delivered.
  bool closed_here() const { return closed_here_.load(std::memory_order_acquire); }
  void abandon();

  uint64_t system_calls() const { return system_calls_.load(std::memory_order_relaxed); }
  unsigned path_mtu() const;
  int bootstrap_socket() const { return bootstrap_.get(); }
  // "rxe0 port 1, GID 1 ::ffff:10.0.0.1 (RoCE v2), path MTU 4096".
  std::string route() const;

 private:
  explicit RdmaLink(std::shared_ptr<RdmaDomain> domain, const Options& options,
                    EventFd sender_event, EventFd receiver_event);

  Status make_queues();
  void on_message(uint32_t bytes);
  void on_control(uint32_t value);
  Status completion_error(const ibv_wc& completion) const;
  Result<uint64_t> post_locked(ibv_send_wr& request, bool signal, bool reserved,
                               uint64_t message_bytes);
  bool post_receives(unsigned count);

  void arm(bool sends);
  void sleep(Role role, Deadline until);
  void drain_channel(Role role);
  void look_at_connection();  // rdma_cm events, the bootstrap socket
  void look_at_link();        // the port's state; a probe to the peer
  Role other(Role role) const { return role == Role::kSender ? Role::kReceiver : Role::kSender; }
  const EventFd& event(Role role) const { return events_[static_cast<size_t>(role)]; }
  std::atomic<bool>& asleep(Role role) { return asleep_[static_cast<size_t>(role)]; }
  void lose_to_peer(const char* why);

  const std::shared_ptr<RdmaDomain> domain_;
  const Options options_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* send_queue_ = nullptr;
  ibv_cq* receive_queue_ = nullptr;
  ibv_qp* pair_ = nullptr;
  uint32_t max_inline_ = 0, max_sge_ = 1;
  uint64_t max_message_ = 0;
  RdmaRing peer_ring_;
  Fd bootstrap_;
  std::array<EventFd, 2> events_;  // of the roles
  Fd poller_;  // epoll over the channel, the receiver's event, rdma_cm, the bootstrap

  TryLock post_lock_;
  uint64_t posted_ = 0, unsignalled_ = 0;  // guarded by post_lock_
  bool stop_posting_ = false;              // guarded by post_lock_
  std::atomic<uint64_t> completed_{0};

  TryLock poll_lock_;  // around both completion queues
  // Of our stream: the end of each message that the peer may not have taken yet. Written by the
  // sender.
  std::array<uint64_t, kRdmaMessages> sent_ends_{};
  std::atomic<uint64_t> sent_messages_{0};
  uint64_t sent_bytes_ = 0;                     // the sender's
  std::atomic<uint64_t> credited_messages_{0};  // written under poll_lock_
  // Of the peer's stream. Ends of messages, written under poll_lock_ before arrived_messages_
  // counts them.
  std::array<uint64_t, kRdmaMessages> arrived_ends_{};
  std::atomic<uint64_t> arrived_messages_{0}, arrived_bytes_{0};
  std::atomic<uint64_t> credit_bytes_given_{0},
      credit_messages_given_{0};             // written by the receiver
  std::atomic<uint64_t> consumed_bytes_{0};  // by the receiver
  uint64_t consumed_messages_ = 0, consumed_end_ = 0, renewed_messages_ = 0;  // the receiver's

  std::array<std::atomic<bool>, 2> asleep_{};
  std::atomic<bool> watched_{false};  // a thread polls the descriptor
  std::mutex connection_mutex_;       // rdma_cm events, probes
  Clock::time_point next_look_{};     // guarded by connection_mutex_, like these
  Clock::time_point port_down_since_{};
  uint64_t probe_ = 0;
  uint64_t arrived_at_look_ = 0;

  std::atomic<bool> connected_{false}, closing_{false}, closed_here_{false};
  Loss loss_;
  std::atomic<uint64_t> system_calls_{0};
};

template <typename Ready>
Status RdmaLink::wait(Role role, Deadline deadline, Ready ready, bool for_completions) {
  std::optional<Spin> spin;
  for (unsigned round = 0;; ++round) {
    poll(role, false, for_completions || round % 16 == 15);
    if (ready()) return Status();
    if (lost()) return lost_status();
    if (round % 8 != 7) continue;  // the clock costs more than the queues
    const auto now = Clock::now();
    if (now >= deadline) return peer_is_busy();
    if (!spin) spin.emplace(options_.spin, deadline);
    if (spin->go_on(now)) continue;
    // Later completions make the channel readable; earlier ones are seen now.
    asleep(role).store(true);
    arm(for_completions || role == Role::kSender);
    poll(role, true);
    if (!ready() && !lost()) sleep(role, deadline);
    asleep(role).store(false);
    spin.reset();
  }
}

template <typename Ready>
Status RdmaLink::wait_by_polling(Deadline deadline, Ready ready) {
  constexpr auto kSpin = std::chrono::microseconds(20),
                 kLongestNap = std::chrono::microseconds(100);
  const auto begin = Clock::now();
  for (;;) {
    poll(Role::kNobody);
    if (ready()) return Status();
    if (lost()) return lost_status();
    const auto now = Clock::now();
    if (now >= deadline) return peer_is_busy();
    const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(now - begin);
    if (waited < std::max(kSpin, options_.spin)) continue;
    std::this_thread::sleep_for(std::min(waited / 16, kLongestNap));
  }
}

}  // namespace fargpu::transport
