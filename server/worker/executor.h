// The executor: the one thread of a session's worker that matters. Takes frames in order, executes
// them, polls what is pending, sleeps when there is nothing to do.
//
// It never waits for the GPU, and frames that keep coming do not keep it from what is pending: it
// polls that at least every kBudget. With something pending it looks again after a time that grows
// with how long it has been waiting (at most 1 ms); with nothing pending it sleeps until a frame
// comes: an idle session costs nothing.
#pragma once

#include <chrono>
#include <string>

#include "common/transport/transport.h"
#include "common/wire/opcode_set.h"
#include "server/worker/session_commands.h"
#include "server/worker/session_watch.h"
#include "server/worker/session_worker.h"

namespace fargpu::server {

class Executor final : public transport::FrameHandler {
 public:
  // `spin`: how long it looks for what is pending without sleeping in between.
  Executor(SessionWorker& worker, transport::Transport& transport, SessionStatistics& statistics,
           std::chrono::microseconds spin, const SessionCommands::Source& daemon = {})
      : worker_(worker),
        transport_(transport),
        statistics_(statistics),
        spin_(spin),
        commands_(daemon, worker, statistics, activity_) {}

  // When it works and when it waits. Any thread may look.
  Activity& activity() { return activity_; }
  // What the daemon says. Frames that were received before a stop are still executed.
  SessionCommands& commands() { return commands_; }
  // Until the client says bye (ok), its connection is lost, or it breaks the protocol.
  Status run();

  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header,
                                           std::span<const std::byte> body) override;
  Status on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                  std::span<std::byte> bulk) override;

 private:
  Status on_control(const wire::FrameHeader& header, std::span<const std::byte> body);
  Status on_call(const Request& request);
  // The client is newer and does not look at what we know; names the opcode once.
  Status refuse_unknown(const wire::FrameHeader& header);
  transport::Deadline next_look();
  Status between_frames();
  // The daemon has stopped the session: goes on with what was taken before, and takes nothing more.
  Status stand_still();
  // After a frame: polls what is pending if the last time is too long ago.
  Status keep_budget();

  SessionWorker& worker_;
  transport::Transport& transport_;
  SessionStatistics& statistics_;
  static constexpr std::chrono::microseconds kBudget{200};
  // The clock is asked once for so many frames.
  static constexpr unsigned kFramesPerLook = 4;

  const std::chrono::microseconds spin_;
  Activity activity_;
  SessionCommands commands_;
  unsigned frames_since_look_ = 0;
  transport::Clock::time_point last_poll_{};
  transport::Clock::time_point last_progress_{};
  bool bye_ = false;
  wire::OpcodeSet refused_;  // that were named
  unsigned refused_count_ = 0;
};

}  // namespace fargpu::server
