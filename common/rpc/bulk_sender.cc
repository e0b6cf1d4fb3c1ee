#include "common/rpc/bulk_sender.h"

#include <sys/prctl.h>

#include <utility>

#include "common/host/thread.h"
#include "common/transport/send_whole.h"

namespace fargpu::rpc {

BulkSender::BulkSender(std::unique_ptr<transport::Transport> transport)
    : transport_(std::move(transport)) {}

BulkSender::~BulkSender() {
  if (reader_.joinable()) reader_.join();
}

void BulkSender::read(transport::FrameHandler& handler, std::function<void(const Status&)> ended) {
  reader_ = Thread([this, &handler, ended = std::move(ended)] {
    ::prctl(PR_SET_NAME, "fargpu-bulk");
    ended(read_until_end(handler));
  });
}

Status BulkSender::read_until_end(transport::FrameHandler& handler) {
  for (;;) {
    const auto received = transport_->receive(handler, transport::kNoDeadline);
    if (!received.ok()) return received.status();
  }
}

Status BulkSender::send(wire::FrameHeader header, std::span<const std::byte> body,
                        std::span<const std::byte> bulk) {
  const std::lock_guard lock(mutex_);
  header.sequence = ++sequence_;
  return transport::send_whole(*transport_, header, body, bulk);
}

}  // namespace fargpu::rpc
