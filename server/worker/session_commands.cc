#include "server/worker/session_commands.h"

#include <poll.h>
#include <sys/socket.h>

#include <iterator>
#include <utility>

#include "common/base/log.h"

namespace fargpu::server {

using transport::Clock;

constinit const SessionOrders SessionCommands::kNoOrders;

bool SessionCommands::take() {
  Fd descriptor;
  const auto message = receive_message(source_.socket, Clock::now(), &descriptor);
  if (!message.ok()) return message.status().code() == StatusCode::kTimeout;
  if (kind_of(*message) ==
      (message->is_reply() ? WorkerMessage::kConnectPeer : WorkerMessage::kPeerConnected)) {
    if (source_.links != nullptr) source_.links->arrived(*message, std::move(descriptor));
    return true;
  }
  if (takes_images(*message, descriptor)) return true;
  if (message->is_reply() && kind_of(*message) == WorkerMessage::kAwaitEnded) {
    worker_.parts().posted.post([this, sequence = message->header.sequence] {
      worker_.parts().ended_sessions.answered(sequence);
    });
    return true;
  }
  if (message->is_reply()) return true;
  Command command{message->header, Clock::now()};
  switch (kind_of(*message)) {
    case WorkerMessage::kClient:
      answer_about_client(message->header);
      return true;
    case WorkerMessage::kReport:
    case WorkerMessage::kStop:
    case WorkerMessage::kResume:
      break;
    case WorkerMessage::kDrain:
      if (const auto limit = parse_drain(message->body()); limit.ok()) {
        command.until += *limit;
        break;
      }
      [[fallthrough]];
    default:
      log::warn("event=command-unknown kind={}", message->header.opcode);
      if ((message->header.flags & wire::kWantReply) != 0)
        (void)send_message(source_.socket, encode_unknown(message->header), Clock::now());
      return true;
  }
  worker_.parts().posted.post([this, command] { open_.push_back(command); });
  {
    std::lock_guard lock(mutex_);
    news_ = true;
  }
  changed_.notify_all();
  if (kind_of(*message) == WorkerMessage::kReport) answer_for_the_executor(command);
  return true;
}

bool SessionCommands::takes_images(const ReceivedMessage& message, Fd& descriptor) const {
  const wire::FrameHeader& header = message.header;
  SessionParts& parts = worker_.parts();
  const WorkerMessage kind = kind_of(message);
  if (message.is_reply() &&
      (kind == WorkerMessage::kFindImage || kind == WorkerMessage::kBeginImage)) {
    parts.daemon_images.answered(header, std::move(descriptor));
  } else if (message.is_reply() && kind == WorkerMessage::kKeepImage) {
    parts.posted.post([&parts, header] { parts.images.kept(header.sequence, header.result == 0); });
  } else if (kind == WorkerMessage::kEndImage) {
    parts.posted.post([&parts, header] { parts.images.revoked(header.sequence); });
  } else {
    return false;
  }
  return true;
}

namespace {

bool is_unix(int socket) {
  int domain = 0;
  socklen_t bytes = sizeof domain;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

}  // namespace

void SessionCommands::answer_about_client(const wire::FrameHeader& command) const {
  WorkerReport report;
  report.calls = statistics_.calls.load(std::memory_order_relaxed);
  report.stopped = stopped();
  // A process that can be waited for has ended, even if the end of its connection is on its way.
  pollfd client[] = {{source_.client, POLLRDHUP, 0}, {source_.process, POLLIN, 0}};
  report.client_gone = activity_.peer_gone() || ::poll(client, std::size(client), 0) > 0;
  report.client_seen = source_.process >= 0 || is_unix(source_.client) ||
                       worker_.parts().transport.capabilities().same_host;
  (void)send_message(source_.socket, encode_report(command, report), Clock::now());
}

// The executor gets half a second to answer by itself.
void SessionCommands::answer_for_the_executor(const Command& command) {
  constexpr auto kPatience = std::chrono::milliseconds(500), kSlice = std::chrono::milliseconds(5);
  const auto until = Clock::now() + kPatience;
  std::unique_lock lock(mutex_);
  while (Clock::now() < until) {
    if (changed_.wait_for(lock, kSlice, [&] { return command.answered->load(); })) return;
    // It answers itself once this thread has read what it waits for.
    if (worker_.parts().daemon_images.waiting()) return;
  }
  lock.unlock();
  WorkerReport report;
  report.calls = statistics_.calls.load(std::memory_order_relaxed);
  report.stopped = stopped();
  report.stuck = true;
  report.call = activity_.opcode();
  answer(command, report);
}

void SessionCommands::answer(const Command& command, const WorkerReport& report) {
  {
    std::lock_guard lock(mutex_);
    if (command.answered->exchange(true)) return;
  }
  changed_.notify_all();
  // Dropped if the daemon does not read its socket.
  (void)send_message(source_.socket, encode_report(command.header, report), Clock::now());
}

void SessionCommands::say_settled() {
  if (source_.socket >= 0 && source_.version >= kAheadProtocol)
    (void)send_message(source_.socket, encode_settled(), Clock::now());
}

// A stop and a resume count from here on: the gate is looked at before each call.
bool SessionCommands::can_answer(const Command& command) {
  return static_cast<WorkerMessage>(command.header.opcode) != WorkerMessage::kDrain ||
         Clock::now() >= command.until || worker_.idle();
}

void SessionCommands::serve() {
  std::erase_if(open_, [this](const Command& command) {
    if (!can_answer(command)) return false;
    WorkerReport report = worker_.report();
    report.calls = statistics_.calls.load(std::memory_order_relaxed);
    report.stopped = stopped();
    answer(command, report);
    return true;
  });
}

void SessionCommands::pause(transport::Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return news_; });
  news_ = false;
}

}  // namespace fargpu::server
