#include "server/daemon/worker_link.h"

#include <fmt/core.h>

#include <boost/asio/post.hpp>
#include <utility>

namespace fargpu::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using transport::Clock;

// Limit per worker before others have their turn.
constexpr size_t kMessagesPerTurn = 16;
constexpr size_t kMostAwaiting = 4;
// Added to the limit of a drain for the answer.
constexpr auto kAnswerTime = std::chrono::seconds(1);

}  // namespace

WorkerLink::WorkerLink(asio::io_context& loop, Fd socket) : loop_(loop), socket_(loop) {
  socket_.assign(socket.get());
  (void)socket.release();
}

Status WorkerLink::send_start(const WorkerOptions& options) { return send_start(options, {}); }

Status WorkerLink::send_start(const WorkerOptions& options, std::span<const int> descriptors) {
  on_prepared_ = nullptr;
  return send_message(socket_.native_handle(), encode_start(options), descriptors, Clock::now());
}

Status WorkerLink::send_prepare(const PrepareOptions& options, OnPrepared on_prepared) {
  on_prepared_ = std::move(on_prepared);
  preparing_ = true;
  return send_message(socket_.native_handle(), encode_prepare(options), Clock::now());
}

void WorkerLink::start(OnBroken on_broken, OnConnectPeer on_connect_peer,
                       std::function<void()> on_settled, OnAwaitEnded on_await_ended) {
  on_broken_ = std::move(on_broken);
  on_connect_peer_ = std::move(on_connect_peer);
  on_settled_ = std::move(on_settled);
  on_await_ended_ = std::move(on_await_ended);
  if (!std::exchange(reading_, true)) wait();
}

void WorkerLink::serve_images(ImageBroker& broker, uint64_t session, const TenantId& tenant) {
  images_ = std::make_shared<ImageDesk>(broker, session, tenant, socket_.native_handle());
}

void WorkerLink::wait() {
  socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const error_code& error) {
                       if (error) return;
                       const Status status = self->take(kMessagesPerTurn);
                       if (status.ok()) return self->wait();
                       self->ending_ = true;
                       // Closed by the worker: Sessions::reap() sees its end.
                       if (status.code() == StatusCode::kLost) return;
                       if (const auto broken = std::exchange(self->on_broken_, nullptr))
                         broken(status);
                     });
}

Status WorkerLink::take(size_t most) {
  for (size_t i = 0; i < most; ++i) {
    auto message = receive_message(socket_.native_handle(), Clock::now());
    if (!message.ok()) {
      return message.status().code() == StatusCode::kTimeout ? Status() : message.status();
    }
    FARGPU_RETURN_IF_ERROR(take_one(*message));
  }
  return Status();
}

Status WorkerLink::take_one(const ReceivedMessage& message) {
  if (!started_) {
    FARGPU_ASSIGN_OR_RETURN(version_, check_started(message));
    started_ = true;
    return Status();
  }
  if (message.is_reply() && kind_of(message) == WorkerMessage::kPrepare) {
    // First: its sequence may be that of a command.
    if (std::exchange(preparing_, false)) return take_prepared(message);
  } else if (message.is_reply()) {
    if (const auto asked = questions_.find(message.header.sequence); asked != questions_.end()) {
      auto report = parse_report(message);
      const bool broken = !report.ok() && report.status().code() == StatusCode::kProtocol;
      answer(message.header.sequence, report);
      return broken ? report.status() : Status();
    }
  } else if (kind_of(message) == WorkerMessage::kLastWords) {
    ending_ = true;
    FARGPU_ASSIGN_OR_RETURN(last_words_, parse_last_words(message.body()));
    return Status();
  } else if (images_ && ImageDesk::takes(kind_of(message))) {
    return images_->take(message);
  } else if (kind_of(message) == WorkerMessage::kConnectPeer) {
    return take_connect_peer(message);
  } else if (kind_of(message) == WorkerMessage::kAwaitEnded) {
    take_await_ended(message.header.sequence);
    return Status();
  } else if (kind_of(message) == WorkerMessage::kSettled && on_settled_) {
    std::exchange(on_settled_, nullptr)();
    return Status();
  }
  if (++unasked_ <= kMostUnasked) return Status();
  return {StatusCode::kProtocol,
          fmt::format("{} messages that nobody asked for, the last of kind {}", unasked_,
                      message.header.opcode)};
}

// There is no waiting caller if the session has come first.
Status WorkerLink::take_prepared(const ReceivedMessage& message) {
  Status prepared = parse_prepared(message.body());
  if (prepared.code() == StatusCode::kProtocol) return prepared;
  if (const auto tell = std::exchange(on_prepared_, nullptr)) tell(prepared);
  return Status();
}

// The answer is dropped if the worker does not read its socket.
Status WorkerLink::take_connect_peer(const ReceivedMessage& message) {
  FARGPU_ASSIGN_OR_RETURN(const uint64_t session, parse_peer(message.body()));
  Fd socket;
  if (on_connect_peer_ && !peers_.contains(session)) socket = on_connect_peer_(session);
  if (socket.valid()) peers_.insert(session);
  (void)send_message(
      socket_.native_handle(),
      encode_peer_answer(message.header.sequence, socket.valid() ? 0 : kNoSuchSession),
      socket.get(), Clock::now());
  return Status();
}

// A worker asks once at a time. What is asked beyond that is answered at once.
void WorkerLink::take_await_ended(uint32_t sequence) {
  const auto answer = [weak = weak_from_this(), sequence] {
    const auto self = weak.lock();
    if (!self) return;
    --self->awaiting_;
    if (self->socket_.is_open()) {
      (void)send_message(self->socket_.native_handle(), encode_await_ended_answer(sequence),
                         Clock::now());
    }
  };
  if (++awaiting_ > kMostAwaiting || !on_await_ended_) return answer();
  on_await_ended_(answer);
}

bool WorkerLink::send_peer(uint64_t session, const Fd& socket) {
  return socket_.is_open() && version_ >= kPeerProtocol &&
         send_message(socket_.native_handle(), encode_peer(WorkerMessage::kPeerConnected, session),
                      socket.get(), Clock::now())
             .ok();
}

void WorkerLink::answer(uint32_t sequence, const Result<WorkerReport>& report) {
  auto asked = questions_.extract(sequence);
  if (asked.mapped().on_answer) post(std::move(asked.mapped().on_answer), report);
}

void WorkerLink::post(OnAnswer on_answer, Result<WorkerReport> report) {
  asio::post(loop_,
             [on_answer = std::move(on_answer), report = std::move(report)] { on_answer(report); });
}

void WorkerLink::ask(WorkerMessage command, std::chrono::milliseconds limit, OnAnswer on_answer) {
  if (!socket_.is_open())
    return post(std::move(on_answer), Status(StatusCode::kLost, "the worker has ended"));
  if (questions_.size() >= kMostUnanswered) {
    return post(std::move(on_answer),
                Status(StatusCode::kNoCapacity, "the worker does not answer its commands"));
  }
  const uint32_t sequence = ++sequence_;
  const bool drains = command == WorkerMessage::kDrain;
  const Status sent = send_message(
      socket_.native_handle(),
      drains ? encode_drain(sequence, limit) : encode_command(command, sequence), Clock::now());
  if (!sent.ok()) {
    const bool full = sent.code() == StatusCode::kTimeout;
    return post(
        std::move(on_answer),
        full ? Status(StatusCode::kNoCapacity, "the worker does not read its commands") : sent);
  }
  Question& question =
      questions_.try_emplace(sequence, Question{std::move(on_answer), asio::steady_timer(loop_)})
          .first->second;
  question.timer.expires_after(drains ? limit + kAnswerTime : limit);
  question.timer.async_wait([weak = weak_from_this(), sequence](const error_code& error) {
    const auto self = weak.lock();
    if (error || !self) return;
    const auto asked = self->questions_.find(sequence);
    if (asked == self->questions_.end()) return;
    // The entry stays, so that a late answer is not taken for an unsolicited message.
    if (const auto late = std::exchange(asked->second.on_answer, nullptr))
      late(Status(StatusCode::kTimeout, "the worker did not answer in time"));
  });
}

void WorkerLink::close() {
  if (!socket_.is_open()) return;
  // Reads what the process has left in the socket.
  (void)take(kMostUnasked + kMostUnanswered);
  if (images_) std::exchange(images_, nullptr)->close();
  error_code ignored;
  socket_.close(ignored);
  on_broken_ = nullptr;
  on_connect_peer_ = nullptr;
  on_prepared_ = nullptr;
  on_settled_ = nullptr;
  on_await_ended_ = nullptr;
  ending_ = true;
  for (auto& [sequence, question] : std::exchange(questions_, {})) {
    if (question.on_answer)
      post(std::move(question.on_answer), Status(StatusCode::kLost, "the worker has ended"));
  }
}

}  // namespace fargpu::server
