#include "common/rpc/responder.h"

#include <cstring>

namespace fargpu::rpc {
namespace {

constexpr size_t kHeaderBytes = sizeof(wire::FrameHeader);

wire::FrameHeader reply_header(const wire::FrameHeader& request) {
  wire::FrameHeader header;
  header.opcode = request.opcode;
  header.context = request.context;
  header.sequence = request.sequence;
  header.flags = wire::kReply;
  if ((request.flags & wire::kWantReply) == 0) header.flags |= wire::kAsyncError;
  return header;
}

wire::FrameHeader notice_header(uint16_t opcode, uint32_t sequence) {
  wire::FrameHeader header;
  header.opcode = opcode;
  header.flags = wire::kNotice;
  header.sequence = sequence;
  return header;
}

// A success without a waiting caller.
bool unwanted(const wire::FrameHeader& reply, int32_t result) {
  return (reply.flags & wire::kAsyncError) != 0 && result == 0;
}

// A frame that is only a header.
Status commit_bare(transport::Transport& transport, const wire::FrameHeader& header,
                   transport::Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(const auto slot, transport.reserve(kHeaderBytes, deadline));
  std::memcpy(slot.data(), &header, kHeaderBytes);
  return transport.commit(kHeaderBytes, {}, deadline);
}

}  // namespace

Responder::Frame::Frame(Responder& responder, const wire::FrameHeader& request,
                        size_t body_bytes_bound)
    : responder_(responder.prepared()), lock_(responder.sending_), header_(reply_header(request)) {
  reserve(body_bytes_bound);
}

Responder::Frame::Frame(Responder& responder, uint16_t notice_opcode, size_t body_bytes_bound)
    : responder_(responder.prepared()), lock_(responder.sending_) {
  header_ = notice_header(notice_opcode, 0);
  reserve(body_bytes_bound);
}

void Responder::Frame::reserve(size_t body_bytes_bound) {
  body_bound_ = wire::whole_words(body_bytes_bound);
  auto slot = responder_.transport_.reserve(kHeaderBytes + body_bound_, transport::kNoDeadline);
  if (slot.ok()) {
    slot_ = *slot;
  } else {
    status_ = slot.status();
  }
}

capnp::MessageBuilder& Responder::Frame::builder() {
  if (!builder_) {
    if (slot_.empty()) {
      scratch_ = std::make_unique_for_overwrite<std::byte[]>(body_bound_);
      builder_.emplace(std::span(scratch_.get(), body_bound_));
    } else {
      builder_.emplace(slot_.subspan(kHeaderBytes));
    }
  }
  return *builder_;
}

Status Responder::Frame::send(int32_t result, std::span<const std::span<const std::byte>> bulk) {
  const auto lock = std::move(lock_);  // others may send from here on
  if (!status_.ok()) return status_;
  if (unwanted(header_, result)) return Status();
  if ((header_.flags & wire::kNotice) != 0 && !responder_.takes_notice(header_.opcode))
    return Status();
  const bool bare = result != 0;
  if (bare) bulk = {};
  header_.result = result;
  header_.body_bytes = bare || !builder_ ? 0 : static_cast<uint32_t>(builder_->used_bytes());
  header_.bulk_bytes = 0;
  for (const auto& piece : bulk) header_.bulk_bytes += piece.size();
  std::memcpy(slot_.data(), &header_, kHeaderBytes);
  if (responder_.observer_ != nullptr && (header_.flags & wire::kReply) != 0) [[unlikely]]
    responder_.observer_->sends(header_);
  return responder_.transport_.commit(kHeaderBytes + header_.body_bytes, bulk,
                                      transport::kNoDeadline);
}

Status Responder::reply(const wire::FrameHeader& request, int32_t result) {
  wire::FrameHeader header = reply_header(request);
  if (unwanted(header, result)) return Status();
  header.result = result;
  prepared();
  std::lock_guard lock(sending_);
  if (observer_ != nullptr) [[unlikely]]
    observer_->sends(header);
  return commit_bare(transport_, header, transport::kNoDeadline);
}

Status Responder::notice(uint16_t opcode, uint32_t sequence) {
  if (!takes_notice(opcode)) return Status();
  prepared();
  std::lock_guard lock(sending_);
  return commit_bare(transport_, notice_header(opcode, sequence), transport::kNoDeadline);
}

Status Responder::flush() {
  std::lock_guard lock(sending_);
  return transport_.flush(transport::kNoDeadline);
}

void Responder::try_notice(uint16_t opcode, uint32_t sequence) {
  if (!takes_notice(opcode)) return;
  std::unique_lock lock(sending_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const auto now = transport::Clock::now();
  // The next send or receive sees an error of this one.
  if (commit_bare(transport_, notice_header(opcode, sequence), now).ok())
    (void)transport_.flush(now);
}

}  // namespace fargpu::rpc
