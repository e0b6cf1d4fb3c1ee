// Responder: the server's sending end. Replies and notices, built in the transport's slot.
//
// The executor's thread uses it; only try_notice() may be called by another one. A Frame keeps the
// sending end to itself until it is sent, so build it when there is nothing more to wait for, and
// one at a time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "common/base/try_lock.h"
#include "common/transport/transport.h"
#include "common/wire/slot_message.h"

namespace fargpu::rpc {

class Responder {
 public:
  explicit Responder(transport::Transport& transport) : transport_(transport) {}

  // `before`: called before each reply and notice that the executor's thread sends, so that what
  // the client must have by then goes first. It may send by itself.
  void call_first(std::function<void()> before) { before_ = std::move(before); }

  // One outgoing frame: Reply to `request`, or a notice.
  class Frame {
   public:
    Frame(Responder& responder, const wire::FrameHeader& request,
          size_t body_bytes_bound);                                                // reply
    Frame(Responder& responder, uint16_t notice_opcode, size_t body_bytes_bound);  // notice
    template <typename T>
    typename T::Builder init() {
      return builder().initRoot<T>();
    }
    // Commits (not flushes). For a reply `result` is the CUresult; body and bulk are dropped when
    // result != 0. As in reply(), nothing is sent for a success that nobody waits for. Every
    // failure of the transport comes back here, also that of the constructor.
    Status send(int32_t result, std::span<const std::span<const std::byte>> bulk = {});

   private:
    void reserve(size_t body_bytes_bound);
    capnp::MessageBuilder& builder();
    Responder& responder_;
    std::unique_lock<TryLock> lock_;
    wire::FrameHeader header_;
    Status status_;
    size_t body_bound_ = 0;
    std::span<std::byte> slot_;
    // stands in for the slot when there is none, so that building still works
    std::unique_ptr<std::byte[]> scratch_;
    std::optional<wire::SlotMessageBuilder> builder_;
  };

  // A reply without body. For a request without kWantReply it is sent only when result != 0, as
  // kAsyncError.
  Status reply(const wire::FrameHeader& request, int32_t result);
  Status flush();
  // A notice without body, if nobody sends just now and the transport takes it without waiting. Any
  // thread. What `sequence` says is the notice's business.
  void try_notice(uint16_t opcode, uint32_t sequence);
  transport::Transport& transport() { return transport_; }

 private:
  // Before sending_ is taken.
  Responder& prepared() {
    if (before_) before_();
    return *this;
  }

  transport::Transport& transport_;
  std::function<void()> before_;
  // Around everything that sends. The executor's thread may keep it for long, but then nobody waits
  // for it: try_notice() only tries.
  TryLock sending_;
};

}  // namespace fargpu::rpc
