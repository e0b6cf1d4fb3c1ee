#include "common/rpc/bulk_sender.h"

#include <sys/prctl.h>

#include <cstring>
#include <utility>

#include "common/base/signals_blocked.h"

namespace fargpu::rpc {
namespace {

class NothingExpected final : public transport::FrameHandler {
 public:
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader&,
                                           std::span<const std::byte>) override {
    return broken();
  }
  Status on_frame(const wire::FrameHeader&, std::span<const std::byte>,
                  std::span<std::byte>) override {
    return broken();
  }

 private:
  static Status broken() {
    return {StatusCode::kProtocol, "the server sent a frame on the bulk connection"};
  }
};

}  // namespace

BulkSender::BulkSender(std::unique_ptr<transport::Transport> transport)
    : transport_(std::move(transport)) {}

BulkSender::~BulkSender() {
  if (watch_.joinable()) watch_.join();
}

void BulkSender::watch(std::function<void(const Status&)> ended) {
  const SignalsBlocked blocked;  // the application's handlers run on its own threads
  watch_ = std::thread([this, ended = std::move(ended)] {
    ::prctl(PR_SET_NAME, "fargpu-bulk");
    ended(wait_for_end());
  });
}

Status BulkSender::wait_for_end() {
  NothingExpected nothing;
  for (;;) {
    const auto received = transport_->receive(nothing, transport::kNoDeadline);
    if (!received.ok()) return received.status();  // else it was woken
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
