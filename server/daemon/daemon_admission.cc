#include <fmt/core.h>
#include <sys/socket.h>

#include "common/base/log.h"
#include "common/bootstrap/agreement.h"
#include "common/wire/control.h"
#include "server/daemon/daemon_impl.h"
#include "server/daemon/status_report.h"

namespace fargpu::server {
namespace {

// For a few bytes, the first on their connection: they fit into the socket's buffer.
void write_at_once(const Fd& socket, const std::vector<std::byte>& frame) {
  [[maybe_unused]] const ssize_t sent =
      ::send(socket.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

Status draining_status() {
  return {StatusCode::kNoCapacity,
          "the server is shutting down; use another one or try again later"};
}

}  // namespace

void Daemon::Impl::accept(Fd socket, std::string peer) {
  const Status status = caught([&] { return begin_handshake(std::move(socket), peer); });
  if (!status.ok())
    log::warn("event=connection-dropped peer={} why=\"{}\"", peer, status.message());
}

Status Daemon::Impl::begin_handshake(Fd socket, const std::string& peer) {
  if (!door.make_room()) {
    return {StatusCode::kNoCapacity,
            fmt::format("{} connections wait for their admission, the limit", door.count())};
  }
  Handshake::Decrypt decrypt;
  if (!config.tls_cert.empty() && peer != "unix") {
    decrypt = [this, peer](Fd encrypted) {
      if (!door.make_room_for_relay())
        return Result<Fd>(Status(StatusCode::kNoCapacity, "no room for a relay of TLS"));
      notice_dead_peers(encrypted.get(), {});
      return relays.start(std::move(encrypted),
                          {config.tls_cert, config.tls_key, peer, config.hello_deadline.count(),
                           config.lost_client.count()});
    };
  }
  const auto begun = std::make_shared<Handshake>(
      loop, std::move(socket), peer, config.hello_deadline,
      [this](const std::shared_ptr<Handshake>& handshake) { on_first_frame(handshake); },
      [this](const Handshake& handshake) { door.leave(handshake); }, std::move(decrypt));
  door.enter(*begun);
  begun->start();
  return Status();
}

void Daemon::Impl::on_first_frame(const std::shared_ptr<Handshake>& handshake) {
  try_to_admit(handshake, Attempt::kFirst);
}

void Daemon::Impl::try_to_admit(const std::shared_ptr<Handshake>& handshake, Attempt attempt) {
  const Status status = caught([&] {
    admit(handshake, attempt);
    return Status();
  });
  if (status.ok()) return;
  log::warn("event=connection-dropped peer={} why=\"{}\"", handshake->peer(), status.message());
  handshake->evict();
}

Status Daemon::Impl::answer(Handshake& handshake) {
  if (handshake.in_the_clear()) {
    return {StatusCode::kInvalidArgument,
            "this server takes encrypted connections only: use --tls, or tls:// before its name"};
  }
  const uint16_t opcode = handshake.header().opcode;
  switch (opcode) {
    case wire::kHello:
    case wire::kManage:
      return on_hello(handshake);
    case wire::kJoin:
      return on_join(handshake);
    case wire::kOpenJob:
      return on_open_job(handshake);
    case wire::kStatus:
      return on_status(handshake);
    case wire::kSessionEnd:
      return on_session_end(handshake);
    default:
      break;
  }
  if (bootstrap::known_opcodes().contains(opcode)) {
    return {StatusCode::kProtocol,
            fmt::format("the first frame must be a hello, not opcode {}", opcode)};
  }
  return {StatusCode::kVersion,
          fmt::format("this server (fargpu {}) does not know opcode {}, with which the client "
                      "begins; install a newer release on the server",
                      FARGPU_VERSION, opcode)};
}

void Daemon::Impl::admit(const std::shared_ptr<Handshake>& handshake, Attempt attempt) {
  const wire::FrameHeader& header = handshake->header();
  const Status status = answer(*handshake);
  if (status.ok()) return;
  if (status.code() == StatusCode::kNoCapacity && !draining && attempt == Attempt::kFirst) {
    return sessions.await_ended({}, 0,
                                [this, handshake] { try_to_admit(handshake, Attempt::kLast); });
  }
  const auto hello = parse_hello(handshake->body());
  const bool hellos = header.opcode == wire::kHello || header.opcode == wire::kManage;
  log::warn("event=refused peer={} client=\"{}\" why=\"{}\"", handshake->peer(),
            hellos && hello.ok() ? hello->client_name : "?", status.message());
  handshake->reply_and_close(
      encode_refusal(header.opcode, header.sequence, status,
                     (hellos || header.opcode == wire::kOpenJob) && draining));
}

Status Daemon::Impl::on_status(Handshake& handshake) const {
  FARGPU_ASSIGN_OR_RETURN(const HelloRequest hello, parse_hello(handshake.body()));
  FARGPU_RETURN_IF_ERROR(check_identity(hello, rules));
  const uint32_t accepts = hello.max_body_bytes != 0 ? hello.max_body_bytes : 1u << 20;
  handshake.reply_and_close(encode_status(handshake.header().sequence,
                                          {inventory, placement, keeper.jobs(), sessions, started},
                                          accepts));
  return Status();
}

Status Daemon::Impl::on_session_end(Handshake& handshake) const {
  FARGPU_ASSIGN_OR_RETURN(const HelloRequest hello, parse_hello(handshake.body()));
  FARGPU_RETURN_IF_ERROR(check_identity(hello, rules));
  const auto [state, why] = sessions.end_of(hello.ended_session, tenant_of(handshake));
  handshake.reply_and_close(encode_session_end(handshake.header().sequence, state, why));
  return Status();
}

Status Daemon::Impl::on_hello(Handshake& handshake) {
  const wire::FrameHeader& header = handshake.header();
  auto hello = parse_hello(handshake.body());
  Status status = hello.ok() ? check_hello(*hello, rules) : hello.status();
  if (status.ok() && draining && (ending || !keeper.jobs().knows(hello->job)))
    status = draining_status();
  if (!status.ok()) return status;
  return header.opcode == wire::kManage ? open_management(handshake, *hello)
                                        : open_session(handshake, *hello);
}

Status Daemon::Impl::on_join(Handshake& handshake) {
  FARGPU_ASSIGN_OR_RETURN(const JoinRequest join, parse_join(handshake.body()));
  if (join.protocol_version != rules.protocol_version)
    return {StatusCode::kVersion, "the client speaks another protocol version"};
  FARGPU_RETURN_IF_ERROR(sessions.check(join));
  const uint32_t sequence = handshake.header().sequence;
  const Fd socket = handshake.take_socket();
  const Status passed = sessions.pass(join, socket.get());
  // The worker sends nothing before this answer.
  wire::FrameHeader welcome;
  welcome.opcode = wire::kJoin;
  welcome.flags = wire::kReply;
  welcome.sequence = sequence;
  const auto bytes = std::as_bytes(std::span(&welcome, 1));
  write_at_once(socket, passed.ok() ? std::vector<std::byte>(bytes.begin(), bytes.end())
                                    : encode_refusal(wire::kJoin, sequence, passed, false));
  if (!passed.ok())
    log::warn("event=refused peer={} session={} why=\"{}\"", handshake.peer(),
              id_text(join.session), passed.message());
  return Status();
}

Status Daemon::Impl::on_open_job(Handshake& handshake) {
  FARGPU_ASSIGN_OR_RETURN(const HelloRequest hello, parse_open_job(handshake.body()));
  FARGPU_RETURN_IF_ERROR(check_opener(hello, rules));
  if (draining) return draining_status();
  FARGPU_ASSIGN_OR_RETURN(const bootstrap::JobTicket ticket,
                          keeper.open(hello, handshake.peer(), tenant_of(handshake)));
  Fd socket = handshake.take_socket();
  notice_dead_peers(socket.get(), config.lost_client);
  keeper.attach(ticket, std::move(socket), handshake.header().sequence);
  return Status();
}

Status Daemon::Impl::open_session(Handshake& handshake, const HelloRequest& hello) {
  FARGPU_ASSIGN_OR_RETURN(const Jobs::Seat seat,
                          keeper.enter(hello, handshake.peer(), tenant_of(handshake)));
  const bool encrypted = handshake.encrypted();
  const uint32_t sequence = handshake.header().sequence;
  const Fd socket = handshake.take_socket();
  // The handshake is over: a refusal is written to the socket directly.
  const Status started = caught([&] {
    return sessions.start(
        {*keeper.find(seat.job), seat, hello, socket.get(), handshake.peer(), encrypted, sequence});
  });
  if (started.ok()) return Status();
  keeper.leave(seat);
  write_at_once(socket, encode_refusal(wire::kHello, sequence, started, false));
  return Status();
}

Status Daemon::Impl::open_management(Handshake& handshake, const HelloRequest& hello) {
  if (keeper.jobs().full_of_observers()) (void)sessions.evict_management();
  FARGPU_ASSIGN_OR_RETURN(const uint64_t job,
                          keeper.look_at(hello, handshake.peer(), tenant_of(handshake)));
  const bool encrypted = handshake.encrypted();
  const uint32_t sequence = handshake.header().sequence;
  const Fd socket = handshake.take_socket();
  const Status started = caught([&] {
    return sessions.start({*keeper.find(job), Jobs::Seat{job, 0}, hello, socket.get(),
                           handshake.peer(), encrypted, sequence, /*management=*/true});
  });
  if (started.ok()) return Status();
  keeper.look_away(job);
  write_at_once(socket, encode_refusal(wire::kManage, sequence, started, false));
  return Status();
}

TenantId Daemon::Impl::tenant_of(const Handshake& handshake) const {
  return server::tenant_of(handshake.encrypted() ? -1 : handshake.socket(), rules.token);
}

}  // namespace fargpu::server
