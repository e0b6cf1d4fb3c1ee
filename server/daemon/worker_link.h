// WorkerLink: the daemon's end of the socket to one worker (schema/worker.capnp). Sends commands
// and hands over their answers; keeps the worker's last words. On the daemon's event loop, which it
// never blocks: a message that the socket does not take at once is refused.
//
// A worker's messages are untrusted: malformed, too long, too much unasked, and the link is broken.
// It keeps itself alive until close().
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "common/base/fd.h"
#include "server/handover/worker_messages.h"
#include "server/job/image_desk.h"

namespace fargpu::server {

class WorkerLink : public std::enable_shared_from_this<WorkerLink> {
 public:
  using OnAnswer = std::function<void(const Result<WorkerReport>&)>;
  using OnBroken = std::function<void(const Status&)>;
  using OnPrepared = std::function<void(const Status&)>;
  // The worker asks for a socket to the worker of that session. Returns the socket that it gets;
  // invalid: it gets none.
  using OnConnectPeer = std::function<Fd(uint64_t session)>;
  // The worker asks for a message when others have ended (awaitEnded); `done` answers it.
  using OnAwaitEnded = std::function<void(std::function<void()> done)>;
  // Limit of commands that wait for their answer.
  static constexpr size_t kMostUnanswered = 32;
  // Limit of unsolicited messages. A newer worker may send a few.
  static constexpr size_t kMostUnasked = 64;

  WorkerLink(boost::asio::io_context& loop, Fd socket);

  // Sends Start, before the worker is started, so that the message is there when it looks. After an
  // error no worker may be started.
  Status send_start(const WorkerOptions& options);
  // The same for a worker that was started ahead, with its session's descriptors (kSessionFds),
  // which stay the caller's. After an error it does not serve the session.
  Status send_start(const WorkerOptions& options, std::span<const int> descriptors);
  // For a worker that is started ahead: sends Prepare, before it is started. `on_prepared` is
  // called with its answer, at most once.
  Status send_prepare(const PrepareOptions& options, OnPrepared on_prepared);
  // Reads from now on. `on_broken` is called at most once; nothing is read afterwards. Called once
  // more when a worker that was started ahead gets a session.
  void start(OnBroken on_broken, OnConnectPeer on_connect_peer = nullptr,
             std::function<void()> on_settled = nullptr, OnAwaitEnded on_await_ended = nullptr);
  // Images that the worker asks for and brings are this session's, of this tenant.
  void serve_images(ImageBroker& broker, uint64_t session, const TenantId& tenant);
  // Sends kReport, kStop, kResume, kDrain or kClient. `on_answer` is called once, from the loop:
  // with the report, kTimeout after `limit` (of kDrain: and a little), kUnsupported (an older
  // worker), kLost (the worker has ended), or kNoCapacity (it has not read earlier messages).
  void ask(WorkerMessage command, std::chrono::milliseconds limit, OnAnswer on_answer);
  // Gives the worker a socket to the worker of that session, which has asked for it. False: it
  // does not take it.
  bool send_peer(uint64_t session, const Fd& socket);
  // The worker's process has ended: reads the messages that it has sent, and answers open commands
  // with kLost.
  void close();
  // The worker has said its last words, or its socket is closed: its process is about to end.
  bool ending() const { return ending_; }
  // Of the worker's protocol; 0: it has not said anything yet.
  uint16_t version() const { return version_; }
  const LastWords& last_words() const { return last_words_; }

 private:
  struct Question {
    OnAnswer on_answer;  // empty: its time is over
    boost::asio::steady_timer timer;
  };
  void wait();
  // Takes at most so many messages. Not ok: it is broken, or at its end (kLost).
  Status take(size_t most);
  Status take_one(const ReceivedMessage& message);
  Status take_prepared(const ReceivedMessage& message);
  Status take_connect_peer(const ReceivedMessage& message);
  void take_await_ended(uint32_t sequence);
  void answer(uint32_t sequence, const Result<WorkerReport>& report);
  void post(OnAnswer on_answer, Result<WorkerReport> report);

  boost::asio::io_context& loop_;
  boost::asio::posix::stream_descriptor socket_;
  OnBroken on_broken_;
  OnConnectPeer on_connect_peer_;
  OnPrepared on_prepared_;
  std::function<void()> on_settled_;
  OnAwaitEnded on_await_ended_;
  std::shared_ptr<ImageDesk> images_;
  std::map<uint32_t, Question> questions_;  // by sequence
  uint32_t sequence_ = 0;
  size_t unasked_ = 0;
  size_t awaiting_ = 0;       // kAwaitEnded that is not answered
  std::set<uint64_t> peers_;  // sessions to which the worker has asked for a socket and got one
  bool started_ = false, reading_ = false, preparing_ = false, ending_ = false;
  uint16_t version_ = 0;  // the worker's
  LastWords last_words_;
};

}  // namespace fargpu::server
