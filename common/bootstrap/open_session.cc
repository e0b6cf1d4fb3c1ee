#include "common/bootstrap/open_session.h"

#include <kj/exception.h>

#include <chrono>
#include <thread>

#include "common/base/printable.h"
#include "common/bootstrap/agreement.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"

namespace fargpu::bootstrap {
namespace {

Result<uint32_t> max_body_bytes(std::span<const std::byte> welcome) {
  try {
    wire::SegmentReader reader(welcome);
    return reader.getRoot<schema::Welcome>().getMaxBodyBytes();
  } catch (const kj::Exception&) {
    return Status(StatusCode::kProtocol, "the server's answer to the hello is malformed");
  }
}

// A server's text: the program shows it on a terminal.
constexpr size_t kMostWhy = 1024;

}  // namespace

Result<std::string> ask_for_end(const ServerAddress& server, const Greeting& greeting,
                                transport::Deadline deadline) {
  constexpr auto kBetween = std::chrono::milliseconds(20);
  const Status still_lives(StatusCode::kTimeout, "the server still has the session");
  for (bool lives = false;; lives = true) {
    const auto conversation = ask(server, greeting, {deadline, deadline});
    if (!conversation.ok()) {
      const bool is_late = lives && conversation.status().code() == StatusCode::kTimeout;
      return is_late ? still_lives : conversation.status();
    }
    try {
      wire::SegmentReader reader(conversation->answer.body());
      const auto end = reader.getRoot<schema::SessionEnd>();
      if (end.getState() == schema::SessionEnd::State::ENDED)
        return printable_line(end.getWhy().cStr(), kMostWhy);
      if (end.getState() != schema::SessionEnd::State::LIVES) {
        return Status(StatusCode::kNotFound,
                      "its daemon was started anew and does not know the session");
      }
    } catch (const kj::Exception&) {
      return Status(StatusCode::kProtocol, "the server's answer is malformed");
    }
    if (transport::Clock::now() + kBetween >= deadline) return still_lives;
    std::this_thread::sleep_for(kBetween);
  }
}

Result<Conversation> ask(const ServerAddress& server, const Greeting& greeting,
                         const Patience& patience) {
  FARGPU_ASSIGN_OR_RETURN(Fd socket, connect_server(server, patience.connect));
  auto answer = greet(socket.get(), greeting, patience.connect, patience.answer);
  if (answer.ok()) return Conversation{std::move(socket), std::move(*answer)};
  const StatusCode code = answer.status().code();
  if (code == StatusCode::kProtocol || code == StatusCode::kLost || code == StatusCode::kTimeout) {
    return Status(code,
                  "connected, but it does not answer like a fargpud: " + answer.status().message());
  }
  return answer.status();
}

Result<OpenedSession> open_session(const ServerAddress& server, Greeting greeting,
                                   const LinkWish& wish, const Patience& patience) {
  greeting.upgrades = wish.transport.upgrades;
  greeting.connections = wish.connections.at_most(wish.transport);
  FARGPU_ASSIGN_OR_RETURN(Conversation conversation, ask(server, greeting, patience));
  const auto welcome = conversation.answer.body();
  FARGPU_ASSIGN_OR_RETURN(const auto known, opcodes_of_welcome(welcome));
  FARGPU_ASSIGN_OR_RETURN(const auto offers, read_offers(welcome));
  FARGPU_ASSIGN_OR_RETURN(const auto more, further_connections(conversation.socket.get(), server,
                                                               wish.connections, known, welcome));
  transport::StreamOptions stream;
  stream.receive_limits = greeting.limits;
  FARGPU_ASSIGN_OR_RETURN(stream.max_send_body_bytes, max_body_bytes(welcome));
  stream.spin = wish.spin;
  // A worker may take nothing for as long as a kernel runs; it says that it lives.
  stream.stall_timeout = transport::StreamOptions::kNeverStalls;
  if (server.tls) stream.behind = "tls " + std::get<Endpoint>(server.where).to_string();
  FARGPU_ASSIGN_OR_RETURN(Upgraded link,
                          upgrade_as_client(std::move(conversation.socket), wish.transport, offers,
                                            stream, patience.upgrade, more));
  return OpenedSession{std::move(conversation.answer), known, std::move(link)};
}

}  // namespace fargpu::bootstrap
