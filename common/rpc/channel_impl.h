// The inside of Channel: sequence numbers, waiting calls, the poll lease, flushing, liveness.
//
// Sending. send_mutex serialises reserve, commit and flush. A frame that is not flushed at once is
// flushed by a later sender or by the service thread, at most kFlushDelay later. If the transport
// supports deferred sending (Transport::send_aside), the service thread sends without the mutex, so
// that no call of the application pays for the system call; a later sender does so if the service
// thread is late.
//
// Receiving. At most one thread is inside Transport::receive: the holder of the poll lease,
// `reader`. A waiting caller takes the lease when it is free and polls by itself, so its reply
// needs no thread hand-over. When it is done it nominates the next waiter. The lease is taken with
// or without wait_mutex. It is given back under wait_mutex, so a thread that saw it taken cannot go
// to sleep after it was given back; wait_alone, which gives it back without, relies on the first
// pair below. The service thread (channel_service.cc) polls only while no call waits. Only the
// lease holder completes waiters, so the memory that a reply is copied into stays valid.
//
// A small synchronous call made while no other thread polls takes the lease before its frame leaves
// (wait_alone). It is not put on the list of waiters and does not take wait_mutex, unless another
// thread needs waking when it gives the lease back.
//
// Loss. The loss of a connection is not the loss of the session. The thread that notices a failure
// calls survives(), the only function that decides whether the session goes on without the
// connection. If not, end_session() closes the transport. The next receive() fails; the lease
// holder then fails all waiters and calls the sink.
//
// Bulk connection (channel_bulk.cc). Its BulkSender has a lock of its own, and a thread that reads
// it. Frames that are read on the connection of the calls after a delivery's number wait until the
// delivery has arrived on the bulk connection (landings.h); the caller of a reply waits after it
// has given back the lease. end_session() closes both connections. The sink is notified of a loss
// when neither connection is read any more.
//
// Locks, in the order in which they may be nested. Neither is held while waiting for a reply.
//   send_mutex   reserve, commit, flush; order of sequence numbers
//   wait_mutex   list of waiters, sleep and wake-up of waiters and of the service thread
//
// Atomic pairs. Each side stores and then loads, all seq_cst, so at least one sees the other.
//   wait_alone gives the lease back        stores reader; loads first, service_sleep
//   a waiter, the service thread: sleep    stores first, service_sleep; loads reader
//
//   a call begins to wait                  raises waits; loads service_sleep
//   the service thread begins to doze      stores service_sleep; loads waits
//
//   a sender leaves a frame unflushed      stores unflushed_since; loads flush_armed
//   the service thread begins a round      clears flush_armed; loads unflushed_since
// next_sequence is stored with release and loaded with acquire (below).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/host/quick_mutex.h"
#include "common/host/thread.h"
#include "common/rpc/bulk_sender.h"
#include "common/rpc/channel.h"
#include "common/rpc/landings.h"
#include "common/rpc/link_estimate.h"
#include "common/rpc/liveness.h"
#include "common/transport/resumable.h"

namespace fargpu::rpc {

using transport::Clock;
using transport::Deadline;
using transport::kNoDeadline;

inline constexpr auto kFlushDelay = std::chrono::microseconds(100);
// The service thread's: its timer comes late by about as much.
inline constexpr auto kAsideDelay = std::chrono::microseconds(50);
// A frame of this size or less, without bulk, leaves in one step.
inline constexpr size_t kMostBytesAlone = 2 << 10;
inline constexpr int32_t kNotReady = 600;  // CUDA_ERROR_NOT_READY

struct Channel::Impl final : transport::FrameHandler {
  static constexpr size_t kWakes = 16;

  // One waiting call. It lives on its thread's stack; the list is roughly in sequence order.
  struct Waiter {
    Waiter(Impl& impl, const wire::FrameHeader& header, Reply& its_reply,
           std::span<std::byte> its_bulk)
        : opcode(header.opcode),
          sequence(header.sequence),
          reply(its_reply),
          bulk_out(its_bulk),
          wake(impl.wakes[header.sequence % kWakes]) {}
    void notify() { wake.notify_all(); }  // waiters that share `wake` check again and wait on
    const uint16_t opcode;
    const uint32_t sequence;
    Reply& reply;
    const std::span<std::byte> bulk_out;
    std::condition_variable& wake;
    const transport::WatchedWord* early = nullptr;  // of Channel::call_body
    bool came_early = false;                        // its word was seen before its reply
    // With a bulk connection, written by the lease holder before `done`: the delivery that must
    // have landed before the caller has its answer, and memory for the reply's bulk until then.
    uint64_t behind = 0;
    std::unique_ptr<std::byte[]> bulk_aside;
    // Guarded by wait_mutex. `done` is also guarded by the lease: the lease holder completes its
    // own waiter without the lock.
    bool claimed = false;  // its reply is arriving: the waiter must stay until `done`
    bool done = false;
    bool attended = true;  // its thread waits for it, or is about to
    Status status;
    Waiter* previous = nullptr;
    Waiter* next = nullptr;
  };

  using SendLock = std::unique_lock<QuickMutex>;
  enum class Reader { kNobody, kCaller, kService };
  // How the service thread sleeps. kDoze has no timer, the others do. While calls are frequent it
  // naps, and no call wakes it. kLongNap: a single call takes long.
  enum class ServiceSleep { kAwake, kNap, kLongNap, kWatch, kDoze };
  enum class Wake { kTimeout, kKicked, kReadable };

  Impl(std::unique_ptr<transport::Transport> made, NoticeSink& notice_sink,
       ChannelOptions channel_options, EventFd kick_event,
       std::unique_ptr<transport::Transport> bulk_connection);
  ~Impl() override;

  // channel.cc: receiving, waiting, loss.
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes body) override;
  Status on_frame(const wire::FrameHeader& header, Bytes body, std::span<std::byte> bulk) override;
  Status on_reply(const wire::FrameHeader& header, Bytes body);
  void add(Waiter& waiter);
  void begin_wait();
  // For a thread that stops polling: makes another thread poll, or watch the transport. With
  // wait_mutex held.
  void hand_over();
  // Takes the waiter off the list. False when its reply is already arriving: it must then wait.
  bool try_remove(Waiter& waiter);
  Status wait(Waiter& waiter, Deadline deadline);
  // The same for a waiter that holds the lease and is not on the list.
  Status wait_alone(Waiter& waiter, Deadline deadline);
  // Polls for it until its reply has come, or its word is written and nothing is left that was sent
  // before; once when there is a deadline. The lease holder's.
  Status read_alone(Waiter& waiter, Deadline deadline);
  // Gives the lease back without having polled; the waiter, if any, joins the list.
  void no_longer_alone(Waiter* waiter);
  bool try_lease(Reader who) {
    Reader nobody = Reader::kNobody;
    // Pairs with give_back(): makes visible the last lease holder's changes of the waiters.
    return reader.compare_exchange_strong(nobody, who);
  }
  void give_back() { reader = Reader::kNobody; }
  // Whether the service thread is in a long sleep until it is woken.
  bool watched() const {
    const ServiceSleep now = service_sleep;
    return now == ServiceSleep::kLongNap || now == ServiceSleep::kWatch;
  }
  // With wait_mutex held. False: no thread waits.
  bool notify_first() {
    Waiter* waiter = first;
    while (waiter != nullptr && !waiter->attended) waiter = waiter->next;
    if (waiter != nullptr) waiter->notify();
    return waiter != nullptr;
  }
  // Polls once on the calling thread, which holds the lease, and gives the lease back. `lock` is on
  // wait_mutex: it is released while polling and held again on return. `own`: the thread's waiter,
  // if it waits.
  void read(std::unique_lock<std::mutex>& lock, Waiter* own, Deadline deadline);
  // After a failure of the connection (kLost), or a mistake of the server: whether the session goes
  // on. Ends it if not.
  bool survives(const Status& why);
  void end_session(const Status& why);
  Status lost_status();
  void fail_all_waiters(std::unique_lock<std::mutex>& lock, const Status& why);
  Waiter* find(uint32_t sequence);  // a waiter without an answer
  void link(Waiter& waiter);        // with wait_mutex held, like unlink()
  void unlink(Waiter& waiter);

  // Marks a thread that waits for the server otherwise than for a reply: liveness must be watched
  // meanwhile.
  class WaitingSender {
   public:
    explicit WaitingSender(Impl& impl) : impl_(impl) {
      ++impl_.waiting_senders;
      impl_.begin_wait();
    }
    ~WaitingSender() { --impl_.waiting_senders; }
    WaitingSender(const WaitingSender&) = delete;
    WaitingSender& operator=(const WaitingSender&) = delete;

   private:
    Impl& impl_;
  };
  // Takes send_mutex if that is free before the deadline.
  Status lock_by(SendLock& lock, Deadline deadline);
  // Sends the Bye if it can get send_mutex and room before the deadline.
  Status send_bye(Deadline deadline);

  // channel_call.cc: sending. All with send_mutex held.
  // A small frame without bulk. kTimeout: there is no room, and post_late() waits for it.
  Status try_post(const wire::FrameHeader& header, Bytes body);
  Status post_late(const wire::FrameHeader& header, Bytes body, Deadline deadline);
  // Sends what `commit` commits and waits for the answer; gives the lock back. commit(false) may
  // return kTimeout for want of room, commit(true) waits for it. `small`: so is the frame, and
  // neither it nor the answer has bulk.
  template <typename Commit>
  Status exchange(SendLock& lock, const wire::FrameHeader& header, bool small, Waiter& waiter,
                  Deadline deadline, Commit commit);
  Status wait_for(Waiter& waiter, bool alone, Deadline deadline) {
    return alone ? wait_alone(waiter, deadline) : wait(waiter, deadline);
  }
  // The same while calls are counted, with the lock, which it gives back.
  Status wait_counted(SendLock& lock, const wire::FrameHeader& header, Waiter& waiter, bool alone,
                      Deadline deadline);
  void count_answer(const wire::FrameHeader& header, const LinkMark& mark, const Reply& reply);
  Result<std::span<std::byte>> reserve(size_t bytes);
  Status commit(const wire::FrameHeader& header, size_t bytes, std::span<const Bytes> bulk);
  // The end of a send that does not wait; gives the lock back.
  Status sent(SendLock& lock, Status committed, size_t frame_bytes);
  uint32_t take_sequence();
  Status flush_now(Deadline deadline);
  // In the usual case nothing is to be done, and the clock is not read.
  void flush_or_postpone(size_t frame_bytes) {
    if (!visible_at_commit || !transport->seen_without_flush()) flush_by_clock(frame_bytes);
  }
  void flush_by_clock(size_t frame_bytes);
  // The service thread flushes what was committed.
  void leave_to_service(Clock::time_point now);

  // channel_bulk.cc. Without a bulk connection nothing has to land.
  void read_bulk();
  // The bulk connection has ended; on its thread.
  void bulk_ended(const Status& why);
  // The delivery that must have landed before the caller of this reply has it; 0: none. The lease
  // holder's.
  uint64_t behind(const wire::FrameHeader& reply) const;
  // The lease holder's: the reply's bulk must not be where it belongs before a delivery is.
  std::span<std::byte> bulk_aside(const wire::FrameHeader& reply, Waiter& waiter);
  Status on_notice(const wire::FrameHeader& header, Bytes body, Bytes bulk);
  // The end of a wait for a reply. Waits for the deliveries before it, without lock or lease.
  Status after_landing(Waiter& waiter, Deadline deadline) {
    return waiter.behind == 0 || !waiter.status.ok() ? waiter.status : land(waiter, deadline);
  }
  Status land(Waiter& waiter, Deadline deadline);

  // channel_service.cc.
  void serve();
  // Flushes what is due. Returns when the next unflushed frames are due; kNoDeadline: there are
  // none.
  Deadline flush_if_due(Clock::time_point now);
  // The same with send_mutex, which it gives back. Returns as flush_if_due().
  Deadline flush_aside(SendLock& lock, Clock::time_point now);
  void check_liveness(Clock::time_point now, bool call_waits);
  bool try_send_ping();
  Wake sleep(Deadline until, bool watch_transport);
  // Wakes the service thread.
  void kick();

  const ChannelOptions options;
  NoticeSink& sink;
  std::unique_ptr<transport::Transport> transport;
  transport::Resumable* const resumable;  // the same; null: it is none
  const bool has_descriptor;  // the service thread can wait for the transport without receiving
  // Of the transport's Capabilities: a flush is rarely needed, and cheap when not.
  const bool visible_at_commit;
  const bool sends_aside;
  const std::chrono::microseconds flush_delay;  // the service thread's
  const size_t most_posted;                     // bytes of a body that post() takes
  EventFd kick_event;

  QuickMutex send_mutex;
  // Written under send_mutex. A sender takes its number with release; a thread whose wait has ended
  // loads it with acquire. So everything that happened before a frame was sent happens-before the
  // end of a wait whose answer may depend on that frame. The real order goes through the server,
  // which the memory model does not see.
  std::atomic<uint32_t> next_sequence;
  std::atomic<uint64_t> sequence_wraps{0};  // the same; stored before next_sequence begins again
  size_t unflushed_bytes = 0;               // guarded by send_mutex
  Clock::time_point last_flush{};           // guarded by send_mutex
  // When the oldest unflushed frame was committed (ns of Clock, 0: none). Written under send_mutex;
  // pairs with flush_armed (table at the top).
  std::atomic<int64_t> unflushed_since{0};
  std::atomic<bool> flush_armed{false};  // the service thread's timer ends within kFlushDelay

  LinkUse link_use;  // while calls are counted; guarded by the lock of link_times.cc

  std::mutex wait_mutex;
  // Shared by the waiters, so that no call has to construct and destroy one.
  std::array<std::condition_variable, kWakes> wakes;
  // These four are seq_cst; for the pairs see the table at the top.
  std::atomic<Reader> reader{Reader::kNobody};
  std::atomic<Waiter*> first{nullptr};                            // written under wait_mutex
  std::atomic<ServiceSleep> service_sleep{ServiceSleep::kAwake};  // written under wait_mutex
  std::atomic<uint64_t> waits{0};        // how many calls have waited so far
  std::atomic<int> waiting_senders{0};   // of WaitingSender; set before `waits` is raised
  std::atomic<uint64_t> answers_met{0};  // calls that found the thread of another one reading
  Waiter* last = nullptr;                // guarded by wait_mutex

  // These belong to the lease holder.
  std::vector<std::byte> notice_bulk;
  Waiter* reads_for = nullptr;  // its own waiter
  // Expected replies without a waiting caller: opcode of their calls, and their number.
  uint16_t late_opcode = 0;
  size_t late_replies = 0;

  std::mutex why_mutex;
  Status why_lost;  // guarded by why_mutex
  std::atomic<bool> lost{false};
  std::atomic<bool> closing{false};  // close() was called: loss is expected
  bool told_sink = false;            // on_lost() was called; guarded by wait_mutex
  std::atomic<bool> abandoned{false};

  // Belong to the service thread; `stop` is set by others.
  std::atomic<bool> stop{false};
  bool some_aside = false;  // deferred frames have not been sent
  Liveness liveness;
  Thread service;

  // Null, both: there is no bulk connection. Last, for its thread.
  std::unique_ptr<Landings> landings;
  std::unique_ptr<BulkSender> bulk;
};

}  // namespace fargpu::rpc
