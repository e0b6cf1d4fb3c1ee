// DaemonImages: the daemon as the source of a session's images (schema/worker.capnp, from findImage
// on). A question waits for its answer, which the watch's thread brings. The executor's thread,
// apart from answered() and waiting().
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "server/handover/worker_messages.h"
#include "server/image/image_source.h"

namespace fargpu::server {

class DaemonImages final : public ImageSource {
 public:
  // `control`: to the daemon; -1: there is none. `version`: of its protocol; with an older one the
  // session has only what it brings itself.
  DaemonImages(int control, uint16_t version)
      : control_(version >= kImageProtocol ? control : -1) {}

  Result<Fd> begin(uint32_t upload, uint64_t bytes) override;
  bool keep(uint32_t upload, const Sha256Digest& hash) override;
  void end(uint32_t upload) override;
  Fd find(const Sha256Digest& hash) override;

  // The daemon's answer to findImage or beginImage.
  void answered(const wire::FrameHeader& header, Fd descriptor);
  // The executor waits for one, for 5 s at most.
  bool waiting() const { return waiting_.load(std::memory_order_acquire); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Answer {
    int32_t result = 0;
    Fd descriptor;
  };
  // nullopt: the daemon says nothing.
  std::optional<Answer> ask(WorkerMessage kind, uint32_t sequence, const MessageBytes& question);

  const int control_;
  uint32_t finds_ = 0;          // sequence
  Clock::time_point silent_{};  // not asked until then
  std::atomic<bool> waiting_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  uint16_t kind_ = 0;  // of the question; guarded by mutex_, as what follows
  uint32_t sequence_ = 0;
  std::optional<Answer> answer_;
};

}  // namespace fargpu::server
