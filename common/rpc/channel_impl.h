// The inside of Channel: sequence numbers, waiting calls, who reads, when to flush, liveness.
//
// Sending. send_mutex serialises reserve, commit and flush. A frame that is not flushed at once is
// flushed by a later sender or by the service thread, kFlushDelay after it at the latest.
//
// Receiving. At most one thread is inside Transport::receive: who holds the lease, `reader`. A
// caller that waits reads by itself when nobody does, so its reply needs no thread hand-over; when
// it leaves it nominates the next waiter. The lease is taken with or without wait_mutex and given
// back under it, so nobody who saw it taken goes to sleep after it was given back. The service
// thread (channel_service.cc) reads only when no call waits. A waiter is completed only by the
// thread that reads, so memory that a reply is copied into stays valid.
//
// A small call that finds nobody reading takes the lease before its frame leaves (wait_alone).
// Nobody needs to know it then: it neither is in the list of waiters nor takes wait_mutex, unless
// it finds somebody who needs it when it gives the lease back.
//
// Loss. Whoever notices calls declare_lost(), which closes the transport; the next receive() fails,
// and the thread that reads then fails all waiters and tells the sink.
//
// Lock order: send_mutex before wait_mutex. Neither is held while waiting for a reply.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "common/rpc/channel.h"
#include "common/rpc/liveness.h"

namespace fargpu::rpc {

using transport::Clock;
using transport::Deadline;
using transport::kNoDeadline;

inline constexpr auto kFlushDelay = std::chrono::microseconds(100);

struct Channel::Impl final : transport::FrameHandler {
  static constexpr size_t kWakes = 16;

  // One waiting call; on its thread's stack, linked about in order of sequence numbers.
  struct Waiter {
    Waiter(Impl& impl, const wire::FrameHeader& header, Reply& its_reply,
           std::span<std::byte> its_bulk)
        : opcode(header.opcode),
          sequence(header.sequence),
          reply(its_reply),
          bulk_out(its_bulk),
          wake(impl.wakes[header.sequence % kWakes]) {}
    void notify() { wake.notify_all(); }  // the other waiters there look again, and go on waiting
    const uint16_t opcode;
    const uint32_t sequence;
    Reply& reply;
    const std::span<std::byte> bulk_out;
    std::condition_variable& wake;
    // Guarded by wait_mutex, `done` also by the lease: a thread that reads completes its own waiter
    // without the lock.
    bool claimed = false;  // its reply is arriving: must not leave before `done`
    bool done = false;
    Status status;
    Waiter* previous = nullptr;
    Waiter* next = nullptr;
  };

  enum class Reader { kNobody, kCaller, kService };
  // How the service thread sleeps: with a timer or without one (doze). While calls come and go it
  // naps, and nobody wakes it for their sake; a single long one is awaited in kLongNap.
  enum class ServiceSleep { kAwake, kNap, kLongNap, kWatch, kDoze };
  enum class Wake { kTimeout, kKicked, kReadable };

  Impl(std::unique_ptr<transport::Transport> made, NoticeSink& notice_sink,
       ChannelOptions channel_options, EventFd kick_event);
  ~Impl() override;

  // channel.cc: receiving, waiting, loss.
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes body) override;
  Status on_frame(const wire::FrameHeader& header, Bytes body, std::span<std::byte> bulk) override;
  Status on_reply(const wire::FrameHeader& header, Bytes body);
  void add(Waiter& waiter);
  void begin_wait();
  // Whoever has read, and leaves: somebody must read on, or watch. With wait_mutex held.
  void hand_over();
  // False when the reply is already arriving; the waiter must then wait.
  bool try_remove(Waiter& waiter);
  Status wait(Waiter& waiter, Deadline deadline);
  // The same with the lease, for a waiter that is not in the list.
  Status wait_alone(Waiter& waiter, Deadline deadline);
  // Gives the lease back without having read; the waiter, if there is one, joins the list.
  void no_longer_alone(Waiter* waiter);
  bool try_lease(Reader who) {
    Reader nobody = Reader::kNobody;
    // Pairs with give_back(): what the last reader did to the waiters is seen.
    return reader.compare_exchange_strong(nobody, who);
  }
  void give_back() { reader = Reader::kNobody; }
  // The service thread will not look before long, unless somebody wakes it.
  bool watched() const {
    const ServiceSleep now = service_sleep;
    return now == ServiceSleep::kLongNap || now == ServiceSleep::kWatch;
  }
  void notify_first() {  // with wait_mutex held
    if (Waiter* const waiter = first; waiter != nullptr) waiter->notify();
  }
  // Reads once on the calling thread, which has taken the lease, and gives the lease back. `lock`
  // is on wait_mutex; not held meanwhile, held afterwards. `own`: the thread's waiter, if it waits.
  void read(std::unique_lock<std::mutex>& lock, Waiter* own, Deadline deadline);
  void declare_lost(const Status& why);
  Status lost_status();
  void fail_all_waiters(std::unique_lock<std::mutex>& lock, const Status& why);
  Waiter* find(uint32_t sequence);  // one that has no answer yet
  void link(Waiter& waiter);        // with wait_mutex held, like unlink()
  void unlink(Waiter& waiter);

  // A caller that waits until the server takes what it sends: somebody must watch whether the
  // server lives.
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
  // Sends the last frame, if that is possible before the deadline, whatever other senders do.
  Status send_bye(Deadline deadline);

  // channel_call.cc: sending. All with send_mutex held.
  Result<std::span<std::byte>> reserve(size_t bytes);
  Status commit(size_t bytes, std::span<const Bytes> bulk);
  uint32_t take_sequence();
  Status flush_now(Deadline deadline);
  void flush_or_postpone(size_t frame_bytes);

  // channel_service.cc.
  void serve();
  // When unflushed frames are due; kNoDeadline when there are none.
  Deadline flush_if_due(Clock::time_point now);
  void check_liveness(Clock::time_point now, bool call_waits);
  bool try_send_ping();
  Wake sleep(Deadline until, bool watch_transport);
  // Ends the service thread's sleep.
  void kick();

  const ChannelOptions options;
  NoticeSink& sink;
  std::unique_ptr<transport::Transport> transport;
  const bool has_descriptor;  // the service thread can poll on the transport without reading
  const bool prompt;          // flushing is hardly ever needed, and costs nothing then
  EventFd kick_event;

  std::mutex send_mutex;
  // Written under send_mutex. What the server's answer may depend on happened before the wait for
  // it ends: a frame's sequence number is taken with release, and a thread that waited reads with
  // acquire. The true order leads through the server, which the memory model knows nothing of.
  std::atomic<uint32_t> next_sequence;
  size_t unflushed_bytes = 0;      // guarded by send_mutex
  Clock::time_point last_flush{};  // guarded by send_mutex
  // When the oldest unflushed frame was committed (ns of Clock, 0: none). Written under send_mutex;
  // pairs with flush_armed: a sender stores here and then reads flush_armed, the service thread
  // clears flush_armed and then reads here, so one of them sees the other.
  std::atomic<int64_t> unflushed_since{0};
  std::atomic<bool> flush_armed{false};  // the service thread wakes within kFlushDelay by itself

  std::mutex wait_mutex;
  // Shared by the waiters: one of its own for each would be made and unmade with every call.
  std::array<std::condition_variable, kWakes> wakes;
  // These four in one order for all threads (seq_cst). Who gives the lease back without wait_mutex
  // looks at `first` and service_sleep afterwards; who waits or sleeps sets them first and then
  // looks at `reader`. Who waits without wait_mutex counts in `waits` and then looks at
  // service_sleep; the service thread sets that first and then looks at `waits`.
  std::atomic<Reader> reader{Reader::kNobody};
  std::atomic<Waiter*> first{nullptr};                            // written under wait_mutex
  std::atomic<ServiceSleep> service_sleep{ServiceSleep::kAwake};  // written under wait_mutex
  std::atomic<uint64_t> waits{0};       // how many calls have waited so far
  std::atomic<int> waiting_senders{0};  // set before `waits` is raised
  Waiter* last = nullptr;               // guarded by wait_mutex

  std::vector<std::byte> notice_bulk;  // these two of the thread that reads
  Waiter* reads_for = nullptr;         // its own waiter

  std::mutex why_mutex;
  Status why_lost;  // guarded by why_mutex
  std::atomic<bool> lost{false};
  std::atomic<bool> closing{false};  // close() was called: loss is expected
  bool told_sink = false;            // guarded by wait_mutex
  std::atomic<bool> abandoned{false};

  // Of the service thread.
  std::atomic<bool> stop{false};
  Liveness liveness;
  std::thread service;
};

}  // namespace fargpu::rpc
