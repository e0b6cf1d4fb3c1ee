// SessionCommands: commands of the daemon to a worker (schema/worker.capnp), and the replies.
//
// take() is called on the watch's thread, everything else on the executor's. While the executor is
// inside a driver call, the watch answers reports with its own data.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "common/transport/transport.h"
#include "server/handover/session_orders.h"
#include "server/handover/worker_messages.h"
#include "server/sharing/peer_links.h"
#include "server/worker/session_watch.h"
#include "server/worker/session_worker.h"

namespace fargpu::server {

class SessionCommands {
 public:
  // The daemon's side of a session. Without a socket there are no commands.
  struct Source {
    int socket = -1;
    const SessionOrders* orders = &kNoOrders;
    PeerLinks* links = nullptr;  // that receive the daemon's messages about other sessions
    uint16_t version = 0;        // of the daemon's protocol
    int client = -1;             // the client's connection: it ends when the client does
    int process = -1;            // pidfd of the client; -1: not known
  };
  // All references outlive the commands.
  SessionCommands(const Source& source, SessionWorker& worker, SessionStatistics& statistics,
                  const Activity& activity)
      : source_(source), worker_(worker), statistics_(statistics), activity_(activity) {}

  int socket() const { return source_.socket; }
  // Reads one command from the readable socket and wakes the executor for it. False: no further
  // command will come.
  bool take();

  // The daemon has closed the gate. One relaxed load.
  bool stopped() const { return source_.orders->gate.load(std::memory_order_relaxed) != 0; }
  // Reports to the daemon, once, that the session has settled. Does not wait.
  void say_settled();
  // Commands wait for their answer.
  bool waiting() const { return !open_.empty(); }
  // Answers the commands that can be answered now.
  void serve();
  // Sleeps until the deadline or the next command.
  void pause(transport::Deadline deadline);

 private:
  struct Command {
    wire::FrameHeader header;
    transport::Deadline until;  // of drain
    // The executor and the watch may both reply; the first to set this does.
    std::shared_ptr<std::atomic<bool>> answered = std::make_shared<std::atomic<bool>>(false);
  };
  // Answered by the watch itself, also while the executor is busy.
  void answer_about_client(const wire::FrameHeader& command) const;
  // Whether it is about images.
  bool takes_images(const ReceivedMessage& message, Fd& descriptor) const;
  bool can_answer(const Command& command);
  void answer(const Command& command, const WorkerReport& report);
  void answer_for_the_executor(const Command& command);

  static const SessionOrders kNoOrders;
  const Source source_;
  SessionWorker& worker_;
  SessionStatistics& statistics_;
  const Activity& activity_;
  std::vector<Command> open_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool news_ = false;  // guarded by mutex_: a command came since the last pause()
};

}  // namespace fargpu::server
