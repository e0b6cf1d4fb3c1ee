#include "common/rpc/bulk_sender.h"

#include <sys/prctl.h>

#include <cstring>
#include <utility>

#include "common/base/signals_blocked.h"

namespace fargpu::rpc {

BulkSender::BulkSender(std::unique_ptr<transport::Transport> transport)
    : transport_(std::move(transport)) {}

BulkSender::~BulkSender() {
  if (reader_.joinable()) reader_.join();
}

void BulkSender::read(transport::FrameHandler& handler, std::function<void(const Status&)> ended) {
  const SignalsBlocked blocked;  // the application's handlers run on its own threads
  reader_ = std::thread([this, &handler, ended = std::move(ended)] {
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
  const size_t bytes = sizeof header + body.size();
  const std::lock_guard lock(mutex_);
  header.sequence = ++sequence_;
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.bulk_bytes = bulk.size();
  FARGPU_ASSIGN_OR_RETURN(const auto slot, transport_->reserve(bytes, transport::kNoDeadline));
  std::memcpy(slot.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(slot.data() + sizeof header, body.data(), body.size());
  FARGPU_RETURN_IF_ERROR(
      transport_->commit(bytes, std::span(&bulk, bulk.empty() ? 0 : 1), transport::kNoDeadline));
  return transport_->flush(transport::kNoDeadline);
}

}  // namespace fargpu::rpc
