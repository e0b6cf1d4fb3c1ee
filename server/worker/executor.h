// The executor: the thread of a worker that executes the session's frames, in order. It also polls
// pending work and sleeps when there is nothing to do.
//
// It never waits for the GPU. Pending work is polled at least every kBudget, also while frames keep
// arriving. Without frames it polls at intervals that grow with the length of the wait, up to 1 ms.
// With nothing pending it sleeps until a frame arrives: an idle session costs no processor time.
#pragma once

#include <chrono>
#include <string>

#include "common/transport/resumable.h"
#include "common/transport/transport.h"
#include "common/wire/opcode_set.h"
#include "server/worker/bulk_receiver.h"
#include "server/worker/session_commands.h"
#include "server/worker/session_watch.h"
#include "server/worker/session_worker.h"
#include "server/worker/submission_gate.h"

namespace fargpu::server {

class Executor final : public transport::FrameHandler {
 public:
  // `spin`: how long pending work is polled without sleeping in between.
  Executor(SessionWorker& worker, transport::Transport& transport, SessionStatistics& statistics,
           std::chrono::microseconds spin, const SessionCommands::Source& daemon = {})
      : worker_(worker),
        transport_(transport),
        resumable_(dynamic_cast<transport::Resumable*>(&transport)),
        statistics_(statistics),
        timeline_(worker.timeline()),
        spin_(spin),
        gate_(*daemon.orders),
        commands_(daemon, worker, statistics, activity_) {}

  // Whether it is at work. Any thread may read it.
  Activity& activity() { return activity_; }
  // Commands of the daemon.
  SessionCommands& commands() { return commands_; }
  // Its bulk connection, if it has one; outlives run().
  void reads_beside(BulkReceiver& bulk) { bulk_ = &bulk; }
  // The only function that decides whether the session goes on after the loss of its connection: if
  // the transport can resume, it has no bulk connection, and the client has not broken the rules.
  // On the executor's thread, or on the watch's.
  bool survives(const Status& why) {
    return why.code() == StatusCode::kLost && bulk_ == nullptr && resumable_ != nullptr &&
           resumable_->resume(why);
  }
  // Until the client says bye (ok), the session ends with its connection (kLost), or the client
  // breaks the protocol.
  Status run();

  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header,
                                           std::span<const std::byte> body) override;
  Status on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                  std::span<std::byte> bulk) override;

 private:
  // Until a bye or an error of the connection or the client.
  Status serve();
  Status execute(const wire::FrameHeader& header, std::span<const std::byte> body,
                 std::span<std::byte> bulk);
  // A frame that arrives while the gate is not open.
  Status at_gate(const wire::FrameHeader& header, std::span<const std::byte> body,
                 std::span<std::byte> bulk);
  // Executes the frames that waited at the gate and may go on.
  Status after_gate();
  // No more frames can wait: until the oldest may go on.
  Status wait_at_gate();
  Status on_control(const wire::FrameHeader& header, std::span<const std::byte> body);
  Status on_call(const Request& request);
  // For an opcode that this worker does not know; logs each once.
  Status refuse_unknown(const wire::FrameHeader& header);
  transport::Deadline next_look();
  Status between_frames();
  // After a frame: polls pending work if the last poll is kBudget ago.
  Status keep_budget();

  SessionWorker& worker_;
  transport::Transport& transport_;
  transport::Resumable* const resumable_;  // the same; null: it is none
  SessionStatistics& statistics_;
  Timeline& timeline_;
  static constexpr std::chrono::microseconds kBudget{200};
  // For the driver, at once. A client has about one for each of its threads.
  static constexpr size_t kMostWaits = 1u << 17;
  // The clock is read once per so many frames.
  static constexpr unsigned kFramesPerLook = 4;

  const std::chrono::microseconds spin_;
  Activity activity_;
  SubmissionGate gate_;
  SessionCommands commands_;
  BulkReceiver* bulk_ = nullptr;
  unsigned frames_since_look_ = 0;
  transport::Clock::time_point last_poll_{};
  transport::Clock::time_point last_progress_{};
  bool bye_ = false;
  bool settled_ = false;     // the session has its first context, and the daemon knows
  wire::OpcodeSet refused_;  // logged already
  unsigned refused_count_ = 0;
};

}  // namespace fargpu::server
