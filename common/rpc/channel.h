// Channel: the client's end of a session. One ordered stream of calls; replies matched by sequence
// number.
//
// Any number of threads call. A Call holds the send lock from construction until send()/call() has
// committed its frame, so frames leave in the order in which calls were made; never hold a Call
// across anything that waits. No heap allocation per small call.
//
//   Channel::Call call(channel, opcode, context, body_bytes_bound);
//   auto params = call.init<schema::CuMemAllocV2Params>();   // builds in the transport's slot
//   params.setBytesize(n);
//   Reply reply;
//   Status s = call.call(reply);   // waits: deadline or "lost", never for ever on a dead session
//   reply.result (CUresult), reply.root<schema::CuMemAllocV2Results>()
//
// After the session is lost every call fails at once with kLost (building a message still works, so
// that callers need no special way). A thread that destroys the channel must not be inside one of
// its callbacks, and no call may be under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "common/transport/transport.h"
#include "common/wire/slot_message.h"

namespace fargpu::rpc {

using Bytes = std::span<const std::byte>;

// Told about frames nobody asked for. Called on whichever thread is receiving: must not block and
// must not make calls.
class NoticeSink {
 public:
  virtual ~NoticeSink() = default;
  virtual Status on_notice(const wire::FrameHeader& header, Bytes body, Bytes bulk) = 0;
  // Where a notice's bulk is to be received: exactly header.bulk_bytes that stay valid until
  // on_notice() returns. Empty: memory of the channel.
  virtual Result<std::span<std::byte>> notice_buffer(const wire::FrameHeader& header, Bytes body) {
    (void)header, (void)body;
    return std::span<std::byte>();
  }
  // An async call failed on the server.
  virtual void on_async_error(uint16_t opcode, uint32_t sequence, uint16_t context,
                              int32_t result) = 0;
  // Whether the application waits for a notice: then they are looked for every millisecond also
  // while calls are made, else every 16 ms. Any thread; must not block.
  virtual bool awaits_notices() const { return false; }
  // Once, when the session ends for any reason but close().
  virtual void on_lost(const Status& why) = 0;
};

struct ChannelOptions {
  wire::FrameLimits limits{};  // what we accept in a notice; the transport has its own
  std::chrono::milliseconds keepalive{
      5000};  // ping after this much silence while a call waits; lost after two without answer
  bool sync_all = false;        // FARGPU_SYNC=1: every call waits (async errors surface at once)
  uint32_t first_sequence = 1;  // for tests of the wrap
};

// The answer to one call. On the waiting thread's stack; small bodies need no heap.
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
  // Takes over a connected transport after the hello. `sink` outlives the channel. Starts the
  // service thread.
  Channel(std::unique_ptr<transport::Transport> transport, NoticeSink& sink,
          ChannelOptions options);
  ~Channel();

  class Call {
   public:
    // Takes the send lock and a slot for the header and at most `body_bytes_bound` of body.
    Call(Channel& channel, uint16_t opcode, uint16_t context, size_t body_bytes_bound);
    ~Call();  // not committed: gives the slot back, nothing was sent
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    template <typename T>
    typename T::Builder init() {
      return builder().initRoot<T>();
    }
    // Commits and returns without waiting. `bulk` has been taken when this returns. With sync_all
    // it waits, and the server's error, if any, comes back in *result.
    Status send(std::span<const Bytes> bulk = {}, int32_t* result = nullptr);
    // Commits, flushes, waits. The reply's bulk goes to `bulk_out` (its size must be at least what
    // the server sends, else kProtocol).
    Status call(Reply& reply, std::span<const Bytes> bulk = {}, std::span<std::byte> bulk_out = {});

   private:
    friend class Channel;
    struct State;
    State& state();
    capnp::MessageBuilder& builder();
    Status call_until(Reply& reply, transport::Deadline deadline);
    alignas(16) std::byte storage_[640];  // State in place: lock, slot, builder
  };

  // What async calls have left behind goes out now, instead of within a tenth of a millisecond.
  Status flush();
  // Hands the server a descriptor that later calls name by `number` (descriptor_passing.h).
  // kUnsupported where client and server do not share a host.
  Status pass_descriptor(uint64_t number, int descriptor);
  // For a thread that waits for what a notice brings: reads by itself when nobody else does, so
  // that it depends on no other thread. seen() is asked before and after each look, without a lock.
  // False at the deadline, or when the session is lost.
  bool read_until(const std::function<bool()>& seen, transport::Deadline deadline);
  // awaits_notices() has become true. Any thread.
  void await_notices();
  // After an answer that is no reply (a completion word): as after a call's reply, what other
  // threads did before they sent what the server had by then happened before this returns.
  void see_sent() const;
  // A control request without body.
  Status ask(uint16_t control_opcode, Reply& reply, transport::Deadline deadline);
  // Round trip of an empty control frame, for doctor and liveness.
  Status ping(transport::Deadline deadline);
  bool lost() const;
  Status why_lost() const;
  // Ends the session politely (Bye), without waiting for the server, or for callers that wait for
  // it, beyond `deadline`.
  void close(transport::Deadline deadline);
  // After fork, in the child: forget the connection without touching it (the parent still uses it).
  void abandon_after_fork();
  transport::Transport& transport();

 private:
  friend class Call;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fargpu::rpc
