// Responder: the server's sending end. It builds replies and notices in the transport's slot.
//
// It belongs to the executor's thread; only try_notice() may be called by other threads. A Frame
// locks the sending end until it is sent, so create it when nothing is left to wait for, and only
// one at a time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "common/host/try_lock.h"
#include "common/rpc/frame_observer.h"
#include "common/transport/transport.h"
#include "common/wire/slot_message.h"

namespace fargpu::rpc {

class Responder {
 public:
  explicit Responder(transport::Transport& transport) : transport_(transport) {}

  // `before` is called before each reply and notice that the executor's thread sends. It may send
  // what the client must receive earlier.
  void call_first(std::function<void()> before) { before_ = std::move(before); }

  // Opcodes of notices that the client knows, bit n for opcode n; all unless told otherwise. Other
  // notices are not sent. Called before the first one.
  void client_knows(uint64_t notices) { notices_ = notices; }

  bool takes_notice(uint16_t opcode) const { return opcode < 64 && (notices_ >> opcode & 1) != 0; }

  // Notified of the replies from now on; outlives this.
  void tell(FrameObserver& observer) { observer_ = &observer; }

  // One outgoing frame: a reply to `request`, or a notice.
  class Frame {
   public:
    Frame(Responder& responder, const wire::FrameHeader& request,
          size_t body_bytes_bound);                                                // reply
    Frame(Responder& responder, uint16_t notice_opcode, size_t body_bytes_bound);  // notice
    template <typename T>
    typename T::Builder init() {
      return builder().initRoot<T>();
    }
    // Commits, without a flush. `result` is the CUresult of a reply; when it is not 0, body and
    // bulk are dropped. As in reply(), a success is sent only if the client waits for it. Every
    // failure of the transport is returned here, also one in the constructor.
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
    // Replaces the slot when the transport gave none, so that building still works.
    std::unique_ptr<std::byte[]> scratch_;
    std::optional<wire::SlotMessageBuilder> builder_;
  };

  // A reply without body. For a request without kWantReply it is sent only when result != 0, as
  // kAsyncError.
  Status reply(const wire::FrameHeader& request, int32_t result);
  // A notice without body. The meaning of `sequence` depends on the notice.
  Status notice(uint16_t opcode, uint32_t sequence);
  Status flush();
  // The same, unless another thread is sending or the transport would have to
  // wait. Any thread.
  void try_notice(uint16_t opcode, uint32_t sequence);
  transport::Transport& transport() { return transport_; }

 private:
  // Must be called before sending_ is locked.
  Responder& prepared() {
    if (before_) before_();
    return *this;
  }

  transport::Transport& transport_;
  std::function<void()> before_;
  FrameObserver* observer_ = nullptr;
  uint64_t notices_ = ~uint64_t{0};
  // Held by the sending thread. The executor's thread may hold it for long; no thread waits for it
  // then, since try_notice() only tries.
  TryLock sending_;
};

}  // namespace fargpu::rpc
