#include "server/session/daemon_images.h"

#include <utility>

#include "common/base/log.h"

namespace fargpu::server {
namespace {

constexpr auto kLongestAnswer = std::chrono::seconds(5);
constexpr auto kForLittle = std::chrono::milliseconds(100);
// After a question without an answer.
constexpr auto kSilence = std::chrono::seconds(30);

}  // namespace

std::optional<DaemonImages::Answer> DaemonImages::ask(WorkerMessage kind, uint32_t sequence,
                                                      const MessageBytes& question) {
  if (control_ < 0 || Clock::now() < silent_) return std::nullopt;
  std::unique_lock lock(mutex_);
  kind_ = static_cast<uint16_t>(kind);
  sequence_ = sequence;
  answer_.reset();
  waiting_.store(true, std::memory_order_release);
  const auto until = Clock::now() + kLongestAnswer;
  const bool there = send_message(control_, question, until).ok() &&
                     changed_.wait_until(lock, until, [this] { return answer_.has_value(); });
  waiting_.store(false, std::memory_order_release);
  kind_ = 0;
  if (there) return std::exchange(answer_, std::nullopt);
  silent_ = Clock::now() + kSilence;
  log::warn("event=daemon-silent why=\"a question about an image has no answer\"");
  return std::nullopt;
}

void DaemonImages::answered(const wire::FrameHeader& header, Fd descriptor) {
  {
    const std::lock_guard lock(mutex_);
    if (header.opcode == kind_ && header.sequence == sequence_) {
      answer_ = Answer{header.result, std::move(descriptor)};
      changed_.notify_all();
      return;
    }
  }
  // Too late: the upload has memory of ours.
  if (header.opcode == static_cast<uint16_t>(WorkerMessage::kBeginImage) && header.result == 0)
    end(header.sequence);
}

Result<Fd> DaemonImages::begin(uint32_t upload, uint64_t bytes) {
  auto answer = ask(WorkerMessage::kBeginImage, upload, encode_begin_image(upload, bytes));
  if (!answer) return ImageSource::begin(upload, bytes);
  if (answer->result == 0 && answer->descriptor.valid()) return std::move(answer->descriptor);
  return Status(StatusCode::kNoCapacity,
                "the server has no room for more uploads of images (--image-cache)");
}

bool DaemonImages::keep(uint32_t upload, const Sha256Digest& hash) {
  return control_ >= 0 &&
         send_message(control_, encode_image_name(WorkerMessage::kKeepImage, upload, hash),
                      transport::Clock::now() + kLongestAnswer)
             .ok();
}

void DaemonImages::end(uint32_t upload) {
  if (control_ >= 0)
    (void)send_message(control_, encode_end_image(upload), Clock::now() + kForLittle);
}

Fd DaemonImages::find(const Sha256Digest& hash) {
  const uint32_t sequence = ++finds_;
  auto answer = ask(WorkerMessage::kFindImage, sequence,
                    encode_image_name(WorkerMessage::kFindImage, sequence, hash));
  return answer && answer->result == 0 ? std::move(answer->descriptor) : Fd();
}

}  // namespace fargpu::server
