#include "server/sharing/peer_links.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/id_text.h"
#include "common/base/log.h"

namespace fargpu::server {
namespace {

using transport::Clock;

enum PeerMessage : uint16_t { kQuestion = 1, kAnswer = 2, kFarewell = 3, kHeard = 4 };

constexpr uint64_t kDaemon = 0;  // in the place of a link
// For a peer that reads slowly.
constexpr auto kPatience = std::chrono::seconds(2);
// More are not remembered.
constexpr size_t kMostRefused = 65536;

template <typename Body>
MessageBytes message_of(PeerMessage kind, const Body& body, uint32_t sequence, bool reply) {
  static_assert(sizeof body % sizeof(uint64_t) == 0);
  wire::FrameHeader header;
  header.opcode = kind;
  header.flags = reply ? wire::kReply : 0;
  header.sequence = sequence;
  header.body_bytes = sizeof body;
  MessageBytes bytes(sizeof header + sizeof body);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &body, sizeof body);
  return bytes;
}

// False: it is too short.
template <typename Body>
bool read_body(const ReceivedMessage& message, Body* body) {
  if (message.body().size() < sizeof *body) return false;
  std::memcpy(body, message.body().data(), sizeof *body);
  return true;
}

constexpr PeerAnswer kGone{.result = CUDA_ERROR_INVALID_VALUE};

}  // namespace

Result<std::unique_ptr<PeerLinks>> PeerLinks::create(int control, uint16_t daemon_version) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return system_error("epoll_create1", errno);
  std::unique_ptr<PeerLinks> links(new PeerLinks(std::move(epoll), control, daemon_version));
  if (!links->watch(control, kDaemon)) return system_error("epoll_ctl", errno);
  return links;
}

bool PeerLinks::watch(int descriptor, LinkId id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

std::shared_ptr<PeerLinks::Link> PeerLinks::find(LinkId id) {
  std::lock_guard lock(mutex_);
  const auto found = links_.find(id);
  return found == links_.end() ? nullptr : found->second;
}

void PeerLinks::post(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (posted_ != nullptr) posted_->post(std::move(task));
}

// --- the watch's thread

void PeerLinks::take(const std::function<bool()>& take_command) {
  constexpr int kMost = 8;
  epoll_event ready[kMost];
  const int count = ::epoll_wait(epoll_.get(), ready, kMost, 0);
  for (int i = 0; i < count; ++i) {
    if (ready[i].data.u64 != kDaemon) {
      take_from(ready[i].data.u64);
    } else if (!take_command()) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, control_, nullptr);
    }
  }
}

void PeerLinks::take_from(LinkId id) {
  const auto link = find(id);
  if (link == nullptr) return;
  Fd descriptor;
  auto message = receive_message(link->socket.get(), Clock::now(), &descriptor);
  if (message.ok()) {
    // A task must be copyable.
    post([this, id, message = std::move(*message),
          descriptor = std::make_shared<Fd>(std::move(descriptor))] {
      received(id, message, std::move(*descriptor));
    });
    return;
  }
  if (message.status().code() == StatusCode::kTimeout) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link->socket.get(), nullptr);
  {
    std::lock_guard lock(mutex_);
    links_.erase(id);
  }
  post([this, id, session = link->session] { lost(id, session); });
}

void PeerLinks::arrived(const ReceivedMessage& message, Fd socket) {
  const auto shared = std::make_shared<Fd>(std::move(socket));
  if (message.is_reply()) {
    post([this, sequence = message.header.sequence, shared] {
      connect_answered(sequence, std::move(*shared));
    });
  } else if (const auto session = parse_peer(message.body()); session.ok() && shared->valid()) {
    post([this, session = *session, shared] { enter(session, std::move(*shared)); });
  }
}

// --- the executor's thread

void PeerLinks::open(PostedTasks& posted, OnQuestion on_question, OnEnd on_end,
                     OnFarewell on_farewell, OnHeard on_heard) {
  on_question_ = std::move(on_question);
  on_end_ = std::move(on_end);
  on_farewell_ = std::move(on_farewell);
  on_heard_ = std::move(on_heard);
  std::lock_guard lock(mutex_);
  posted_ = &posted;
}

void PeerLinks::close() {
  std::lock_guard lock(mutex_);
  posted_ = nullptr;
}

PeerLinks::LinkId PeerLinks::enter(uint64_t session, Fd socket) {
  const LinkId id = next_link_++;
  const int descriptor = socket.get();
  {
    std::lock_guard lock(mutex_);
    links_.emplace(id, std::make_shared<Link>(Link{std::move(socket), session}));
  }
  if (!watch(descriptor, id)) log::error("event=no-peer why=\"{}\"", std::strerror(errno));
  return id;
}

void PeerLinks::ask(uint64_t session, const PeerQuestion& question, OnAnswer on_answer) {
  const uint32_t sequence = ++sequence_;
  Open& open =
      open_.try_emplace(sequence, Open{0, session, question, std::move(on_answer)}).first->second;
  if (const auto link = asked_for_.find(session); link != asked_for_.end()) {
    open.link = link->second;
    return send_question(sequence, open);
  }
  if (refused_.contains(session)) return finish(sequence, kGone, Fd());
  const bool under_way = std::any_of(connecting_.begin(), connecting_.end(),
                                     [&](const auto& asked) { return asked.second == session; });
  if (under_way) return;
  if (daemon_version_ >= kPeerProtocol &&
      send_message(control_, encode_peer(WorkerMessage::kConnectPeer, session, sequence),
                   Clock::now() + kPatience)
          .ok()) {
    connecting_.emplace(sequence, session);
    return;
  }
  log::error("event=no-peer session={} why=\"the daemon connects no workers\"", id_text(session));
  finish(sequence, kGone, Fd());
}

void PeerLinks::connect_answered(uint32_t sequence, Fd socket) {
  const auto asked = connecting_.extract(sequence);
  if (asked.empty()) return;
  const uint64_t session = asked.mapped();
  LinkId link = 0;
  if (socket.valid()) {
    link = enter(session, std::move(socket));
    asked_for_[session] = link;
  } else {
    // Ids are never used again, so that this does not change.
    if (refused_.size() >= kMostRefused) refused_.clear();
    refused_.insert(session);
  }
  std::vector<uint32_t> waiting;
  for (const auto& [each, open] : open_)
    if (open.session == session && open.link == 0) waiting.push_back(each);
  for (const uint32_t each : waiting) {
    const auto open = open_.find(each);
    if (open == open_.end()) continue;
    open->second.link = link;
    if (link == 0) {
      finish(each, kGone, Fd());
    } else {
      send_question(each, open->second);
    }
  }
}

void PeerLinks::send_question(uint32_t sequence, Open& open) {
  const auto link = find(open.link);
  if (link != nullptr &&
      send_message(link->socket.get(), message_of(kQuestion, open.question, sequence, false),
                   Clock::now() + kPatience)
          .ok()) {
    return;
  }
  finish(sequence, kGone, Fd());
}

void PeerLinks::finish(uint32_t sequence, const PeerAnswer& answer, Fd descriptor) {
  auto open = open_.extract(sequence);
  if (!open.empty()) open.mapped().on_answer(answer, std::move(descriptor));
}

void PeerLinks::received(LinkId id, const ReceivedMessage& message, Fd descriptor) {
  switch (message.header.opcode) {
    case kQuestion:
      return answer(id, message);
    case kAnswer: {
      PeerAnswer given;
      const auto open = open_.find(message.header.sequence);
      if (open != open_.end() && open->second.link == id && read_body(message, &given))
        finish(message.header.sequence, given, std::move(descriptor));
      return;
    }
    case kFarewell: {
      PeerFarewell farewell;
      if (!read_body(message, &farewell)) return;
      on_farewell_(farewell.secret);
      if (const auto link = find(id); link != nullptr) {
        (void)send_message(link->socket.get(), message_of(kHeard, farewell, 0, true),
                           Clock::now() + kPatience);
      }
      return;
    }
    case kHeard: {
      PeerFarewell farewell;
      if (read_body(message, &farewell)) on_heard_(id, &farewell.secret);
      return;
    }
    default:
      log::warn("event=peer-message-unknown kind={}", message.header.opcode);
  }
}

void PeerLinks::answer(LinkId id, const ReceivedMessage& message) {
  const auto link = find(id);
  PeerQuestion question;
  if (link == nullptr || !read_body(message, &question)) return;
  PeerAnswer given;
  const Fd descriptor = on_question_(id, question, &given);
  const Status sent =
      send_message(link->socket.get(), message_of(kAnswer, given, message.header.sequence, true),
                   descriptor.get(), Clock::now() + kPatience);
  if (!sent.ok())
    log::warn("event=peer-not-answered session={} why=\"{}\"", id_text(link->session),
              sent.message());
}

bool PeerLinks::say_farewell(LinkId id, const ShareSecret& secret) {
  const auto link = find(id);
  return link != nullptr &&
         send_message(link->socket.get(), message_of(kFarewell, PeerFarewell{secret}, 0, false),
                      Clock::now() + kPatience)
             .ok();
}

void PeerLinks::lost(LinkId id, uint64_t session) {
  if (const auto known = asked_for_.find(session);
      known != asked_for_.end() && known->second == id) {
    asked_for_.erase(known);
    on_end_(session);
  }
  std::vector<uint32_t> waiting;
  for (const auto& [each, open] : open_)
    if (open.link == id) waiting.push_back(each);
  for (const uint32_t each : waiting) finish(each, kGone, Fd());
  on_heard_(id, nullptr);
}

}  // namespace fargpu::server
