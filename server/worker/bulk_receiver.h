// BulkReceiver: reads the session's bulk connection on a thread of its own, while the executor
// executes calls. Bytes go straight to the staging memory of the copies that have requested them;
// the consequences of their arrival are a posted task of the executor's thread.
//
// Only fgFetched may come here, with bytes that were asked for; anything else ends the session, and
// so does the end of the connection. BulkDeliveries sends in the other direction. Functions are for
// the executor's thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/transport/transport.h"
#include "server/copy/bulk_deliveries.h"
#include "server/copy/ordered_copies.h"
#include "server/core/posted_tasks.h"

namespace fargpu::server {

class BulkReceiver final : private transport::FrameHandler {
 public:
  // How long the session's other connection must have been silent after the end of this one: the
  // client may have sent calls before it closed both.
  static constexpr std::chrono::seconds kLastFrames{1};
  // But no longer than this behind that end: a client that goes on sends calls for ever.
  static constexpr std::chrono::seconds kLongest{5};
  // Frames that have been read, of which the executor does not know yet. With so many, nothing more
  // is read: small frames must not fill the memory of a worker whose executor is in a long call.
  static constexpr size_t kMostAhead = 256;

  // The references outlive this.
  BulkReceiver(std::unique_ptr<transport::Transport> connection, OrderedCopies& copies,
               PostedTasks& posted);
  ~BulkReceiver() override;  // closes the connection
  BulkReceiver(const BulkReceiver&) = delete;
  BulkReceiver& operator=(const BulkReceiver&) = delete;

  // Not ok: the client broke the rules.
  const Status& broken() const { return broken_; }
  // After a look for calls. `bytes`: the bytes that the session's other connection has received.
  // kLost: the connection has ended, and the other one brings nothing any more.
  Status after_look(uint64_t bytes);
  // When to look for calls although none are expected.
  transport::Deadline next_look() const { return until_.value_or(transport::kNoDeadline); }

 private:
  struct Fetched {
    uint64_t copy = 0, offset = 0, bytes = 0;
  };
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header,
                                           std::span<const std::byte> body) override;
  Status on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                  std::span<std::byte> bulk) override;
  static Result<Fetched> read(const wire::FrameHeader& header, std::span<const std::byte> body);
  void run();
  void ended(const Status& why);
  void wait_for_executor();

  const std::unique_ptr<transport::Transport> connection_;
  BulkDeliveries deliveries_;
  OrderedCopies& copies_;
  PostedTasks& posted_;
  std::vector<std::byte> unneeded_;  // of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t ahead_ = 0;      // frames; guarded by mutex_, as is the next one
  bool closing_ = false;  // the thread must end
  Status broken_;         // these three of the executor's
  Status lost_;
  std::optional<transport::Deadline> until_;
  transport::Deadline at_last_{};
  uint64_t bytes_ = 0;  // as after_look() was told; of the executor's, too
  std::thread thread_;
};

}  // namespace fargpu::server
