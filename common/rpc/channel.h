// Channel: the client's end of a session. It sends one ordered stream of calls and matches replies
// to them by sequence number.
//
// Any thread may call. A Call holds the send lock from its construction until send() or call() has
// committed its frame, so frames leave in the order in which Calls were made. Never hold a Call
// across anything that waits. A small call allocates no heap memory.
//
//   Channel::Call call(channel, opcode, context, body_bytes_bound);
//   auto params = call.init<schema::CuMemAllocV2Params>();   // builds in the transport's slot
//   params.setBytesize(n);
//   Reply reply;
//   Status s = call.call(reply);   // waits until the reply, the deadline, or "lost"
//   reply.result (CUresult), reply.root<schema::CuMemAllocV2Results>()
//
// A session may have a bulk connection besides the connection of its calls. Frames on it
// (send_beside) have an order of their own, get no reply, and delay no call. Deliveries of the
// server come there; replies and notices behind them wait for their bytes (landings.h).
//
// After the session is lost, every call fails at once with kLost. A message can still be built, so
// callers need no special case. The channel must not be destroyed from one of its own callbacks, or
// while a call is under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "common/rpc/frame_observer.h"
#include "common/transport/transport.h"
#include "common/wire/slot_message.h"

namespace fargpu::rpc {

using Bytes = std::span<const std::byte>;

// Receives frames that answer no call. Called on the thread that receives, or on the thread that
// reads the bulk connection: one notice at a time, except `alive` and `landed`, which may be
// handled while another notice is. Must not block and must not make calls.
class NoticeSink {
 public:
  virtual ~NoticeSink() = default;
  virtual Status on_notice(const wire::FrameHeader& header, Bytes body, Bytes bulk) = 0;
  // The memory for a notice's bulk: exactly header.bulk_bytes, valid until on_notice() returns. An
  // empty span: the channel uses memory of its own.
  virtual Result<std::span<std::byte>> notice_buffer(const wire::FrameHeader& header, Bytes body) {
    (void)header, (void)body;
    return std::span<std::byte>();
  }
  // An async call failed on the server.
  virtual void on_async_error(uint16_t opcode, uint32_t sequence, uint16_t context,
                              int32_t result) = 0;
  // Whether the application waits for a notice. If so, the channel polls for notices every
  // millisecond, also while calls are made; else every 16 ms. Any thread; must not block.
  virtual bool awaits_notices() const { return false; }
  // Called once, when the session ends for any reason but close().
  virtual void on_lost(const Status& why) = 0;
};

struct ChannelOptions {
  wire::FrameLimits limits{};  // limits of a notice; the transport has its own
  // While a call waits: a ping after this much silence, lost after two pings without an answer.
  std::chrono::milliseconds keepalive{5000};
  bool sync_all = false;        // FARGPU_SYNC=1: every call waits (async errors surface at once)
  uint32_t first_sequence = 1;  // for tests of the wrap
  // Notified of frames while calls are counted (thread_calls.h); outlives the channel. May be null.
  FrameObserver* frames = nullptr;
  // Calls whose success shows nothing of a stream's progress: their callers need not wait for
  // deliveries on the bulk connection. Null: there are no such calls.
  bool (*tells_nothing)(uint16_t opcode) = nullptr;
};

// The answer to one call. It lives on the waiting thread's stack; small bodies need no heap.
class Reply {
 public:
  int32_t result = 0;  // CUresult
  uint64_t bulk_bytes = 0;
  Reply() = default;
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  template <typename T>
  typename T::Reader root() {
    return reader().getRoot<T>();
  }  // throws kj::Exception on a malformed body: generated code catches
  Bytes body() const;

 private:
  friend class Channel;
  wire::SegmentReader& reader();
  void take(const wire::FrameHeader& header, Bytes body);
  static constexpr size_t kInlineBytes = 512;
  alignas(8) std::byte inline_[kInlineBytes];
  std::unique_ptr<std::byte[]> heap_;
  size_t body_bytes_ = 0;
  std::optional<wire::SegmentReader> reader_;
};

class Channel {
 public:
  // Takes ownership of a transport that is connected and past the hello, and starts the service
  // thread. `sink` must outlive the channel. `bulk`: the session's bulk connection, if it has one;
  // the end of either is the end of the session.
  Channel(std::unique_ptr<transport::Transport> transport, NoticeSink& sink, ChannelOptions options,
          std::unique_ptr<transport::Transport> bulk = nullptr);
  ~Channel();

  class Call {
   public:
    // Takes the send lock and a slot for the header and at most `body_bytes_bound` of body.
    Call(Channel& channel, uint16_t opcode, uint16_t context, size_t body_bytes_bound);
    ~Call();  // an uncommitted call gives its slot back and sends nothing
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    template <typename T>
    typename T::Builder init() {
      return builder().initRoot<T>();
    }
    // Commits and returns without waiting. `bulk` may be reused when this returns. With sync_all it
    // waits, and the server's error, if any, is stored in *result.
    Status send(std::span<const Bytes> bulk = {}, int32_t* result = nullptr);
    // Commits, flushes and waits. The reply's bulk is written to `bulk_out`; kProtocol if the
    // server sends more than fits.
    Status call(Reply& reply, std::span<const Bytes> bulk = {}, std::span<std::byte> bulk_out = {});
    // The same with nothing in bulk; kTimeout at the deadline, when the answer may still come.
    Status call_until(Reply& reply, transport::Deadline deadline);

   private:
    friend class Channel;
    struct State;
    State& state();
    capnp::MessageBuilder& builder();
    alignas(16) std::byte storage_[640];  // holds State: lock, slot, builder
  };

  // Call::send() and Call::call() of a body that is there already; whole words.
  Status send_body(uint16_t opcode, uint16_t context, Bytes body, int32_t* result = nullptr);
  // `early`: a word that is written when the call has succeeded. If the caller sees the word before
  // the reply, it returns after all frames that were sent before the word, unless notices are
  // awaited: only the reply is sure to follow those. The word is polled only while no other thread
  // waits. The reply must have no body.
  Status call_body(uint16_t opcode, uint16_t context, Bytes body, Reply& reply,
                   const transport::WatchedWord* early = nullptr);
  // A call under way whose answer is waited for later, so that the server can begin with the next
  // one meanwhile. Its reply and memory must stay until then.
  class Later {
   public:
    Later();
    ~Later();  // waits, unless wait() was called
    Later(const Later&) = delete;
    Later& operator=(const Later&) = delete;
    bool under_way() const { return waiting_ != nullptr; }
    // As Call::call() returns.
    Status wait();

   private:
    friend class Channel;
    struct Waiting;
    std::unique_ptr<Waiting> waiting_;
  };
  // Sends a small body and returns; `bulk_out` as in Call::call(). Never waits: false when nothing
  // was sent, because another thread is sending, there is no room, or the session is lost. The
  // thread must wait for the answer before anything else that may last.
  bool call_later(uint16_t opcode, uint16_t context, Bytes body, Reply& reply,
                  std::span<std::byte> bulk_out, Later& later);
  // Sends the buffered frames of asynchronous calls now, instead of within 0.1 ms.
  Status flush();
  // Frames that were sent as calls and control requests. The count includes all frames that were
  // sent before the frame whose answer this thread has.
  uint64_t frames_sent() const;
  // How often threads have met here so far: one had to wait for another one, or for its answer.
  uint64_t meetings() const;
  bool has_bulk_connection() const;
  // Sends a frame over the bulk connection, which must exist. Returns when `bulk` has been copied
  // or sent. Frames of this connection keep their order; calls may overtake them.
  Status send_beside(uint16_t opcode, Bytes body, Bytes bulk);
  // Passes a descriptor to the server; later calls refer to it by `number` (descriptor_passing.h).
  // kUnsupported when client and server are on different hosts.
  Status pass_descriptor(uint64_t number, int descriptor);
  // For a thread that waits for a notice: polls the transport by itself while no other thread does,
  // so it depends on no other thread. Returns true once seen() does; seen() is called before and
  // after each poll, without a lock. False at the deadline, or when the session is lost.
  bool read_until(const std::function<bool()>& seen, transport::Deadline deadline);
  // To be called when awaits_notices() has become true. Any thread.
  void await_notices();
  // Call it after an answer that is not a reply (a completion word). As after a reply, actions of
  // other threads before their sending of a frame that the server had received by then
  // happen-before the return of this function.
  void see_sent() const;
  // A control request without body. kTimeout: at the deadline; its answer may still come.
  Status ask(uint16_t control_opcode, Reply& reply, transport::Deadline deadline);
  // Round trip of an empty control frame, for doctor and liveness.
  Status ping(transport::Deadline deadline);
  bool lost() const;
  Status why_lost() const;
  // Ends the session with a Bye. Waits neither for the server, nor for callers that wait for it,
  // beyond `deadline`.
  void close(transport::Deadline deadline);
  // After fork, in the child: drops the connection without using it; the parent still uses it.
  void abandon_after_fork();
  transport::Transport& transport();

 private:
  friend class Call;
  Status send_built(uint16_t opcode, uint16_t context, Bytes body, int32_t* result);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fargpu::rpc
