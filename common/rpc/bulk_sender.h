// BulkSender: the client's end of a session's bulk connection. It sends frames without a reply;
// calls on the session's other connection never wait for them.
//
// Any thread may send; frames leave one after the other, each whole. A thread of this class reads
// the server's frames on this connection until its end. Close it before it is destroyed.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "common/host/thread.h"
#include "common/transport/transport.h"

namespace fargpu::rpc {

class BulkSender {
 public:
  explicit BulkSender(std::unique_ptr<transport::Transport> transport);
  ~BulkSender();
  BulkSender(const BulkSender&) = delete;
  BulkSender& operator=(const BulkSender&) = delete;

  // Starts the thread. It gives frames to `handler`, which outlives this, and calls `ended` once,
  // when the connection ends, also by close().
  void read(transport::FrameHandler& handler, std::function<void(const Status&)> ended);
  // Returns when `bulk` has been taken, or the connection has ended. The header's lengths and
  // sequence number are set here.
  Status send(wire::FrameHeader header, std::span<const std::byte> body,
              std::span<const std::byte> bulk);
  void close() { transport_->close(); }
  uint64_t bytes_received() const { return transport_->statistics().bytes_received; }
  // For a forked child, which never destroys this object.
  void abandon_after_fork() { transport_->abandon_after_fork(); }

 private:
  Status read_until_end(transport::FrameHandler& handler);

  const std::unique_ptr<transport::Transport> transport_;
  std::mutex mutex_;       // held while a frame is sent
  uint32_t sequence_ = 0;  // guarded by mutex_
  Thread reader_;          // null until read()
};

}  // namespace fargpu::rpc
