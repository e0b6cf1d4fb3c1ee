#include "server/job/image_desk.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

namespace fargpu::server {
namespace {

using transport::Clock;

}  // namespace

ImageDesk::ImageDesk(ImageBroker& broker, uint64_t session, const TenantId& tenant, int socket)
    : broker_(broker), session_(session), socket_(socket) {
  broker_.session_begins(session, tenant, [this](uint32_t upload) {
    (void)send_message(socket_, encode_end_image(upload), Clock::now());
  });
}

void ImageDesk::close() {
  if (std::exchange(open_, false)) broker_.session_ended(session_);
}

bool ImageDesk::takes(WorkerMessage kind) {
  return kind == WorkerMessage::kFindImage || kind == WorkerMessage::kBeginImage ||
         kind == WorkerMessage::kKeepImage || kind == WorkerMessage::kEndImage;
}

bool ImageDesk::reads() const {
  constexpr int kMostUnread = 16 << 10;
  int unread = 0;
  return ::ioctl(socket_, SIOCOUTQ, &unread) == 0 && unread < kMostUnread;
}

void ImageDesk::answer(const wire::FrameHeader& question, int descriptor) {
  (void)send_message(socket_, encode_image_answer(question, descriptor >= 0), descriptor,
                     Clock::now());
}

Status ImageDesk::take(const ReceivedMessage& message) {
  const wire::FrameHeader& header = message.header;
  const uint32_t upload = header.sequence;
  switch (kind_of(message)) {
    case WorkerMessage::kFindImage: {
      FARGPU_ASSIGN_OR_RETURN(const Sha256Digest hash, parse_image_hash(message.body()));
      answer(header, reads() ? broker_.find(session_, hash) : -1);
      return Status();
    }
    case WorkerMessage::kBeginImage: {
      FARGPU_ASSIGN_OR_RETURN(const uint64_t bytes, parse_image_bytes(message.body()));
      answer(header, reads() ? broker_.begin(session_, upload, bytes) : -1);
      return Status();
    }
    case WorkerMessage::kKeepImage: {
      FARGPU_ASSIGN_OR_RETURN(const Sha256Digest hash, parse_image_hash(message.body()));
      broker_.keep(session_, upload, hash, [weak = weak_from_this(), header](bool kept) {
        const auto self = weak.lock();
        if (self && self->open_)
          (void)send_message(self->socket_, encode_image_answer(header, kept), Clock::now());
      });
      return Status();
    }
    default:
      broker_.end(session_, upload);
      return Status();
  }
}

}  // namespace fargpu::server
