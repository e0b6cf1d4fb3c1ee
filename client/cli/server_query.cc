#include "client/cli/server_query.h"

#include <fmt/format.h>
#include <kj/exception.h>
#include <unistd.h>

#include <algorithm>

#include "client/settings.h"
#include "common/base/fd.h"
#include "common/transport/frame_io.h"
#include "common/transport/stream.h"
#include "common/transport/tcp.h"
#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::cli {

namespace {

constexpr size_t kHelloWords = 2048;

using transport::Deadline;
using transport::OwnedFrame;

// The next reply; anything else is passed over (a worker may send output first).
Result<OwnedFrame> read_reply(const Fd& socket, Deadline deadline) {
  for (;;) {
    auto frame = transport::read_one_frame(socket.get(), wire::FrameLimits{}, deadline);
    if (!frame || (frame->header.flags & wire::kReply) != 0) return frame;
  }
}

std::string client_name() {
  char host[256] = "unknown";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("{}:{} fargpu", host, ::getpid());
}

Status send_hello(const Fd& socket, uint16_t opcode, const std::string& token, Deadline deadline) {
  std::vector<uint64_t> words(kHelloWords);
  const auto slot = std::as_writable_bytes(std::span(words));
  wire::SlotMessageBuilder builder(slot);
  auto hello = builder.initRoot<schema::Hello>();
  const wire::FrameLimits limits;
  hello.setProtocolVersion(wire::kProtocolVersion);
  hello.setRegistryHash(schema::kRegistryHash);
  hello.setClientVersion(FARGPU_VERSION);
  hello.setToken(token);
  hello.setClientName(client_name());
  hello.setMaxBodyBytes(limits.max_body_bytes);
  hello.setMaxBulkBytes(limits.max_bulk_bytes);
  wire::FrameHeader header;
  header.opcode = opcode;
  header.flags = wire::kWantReply;
  header.sequence = 1;
  return transport::write_one_frame(socket.get(), header, slot.first(builder.used_bytes()), {}, deadline);
}

Status send_empty(const Fd& socket, uint16_t opcode, uint16_t flags, uint32_t sequence, Deadline deadline) {
  wire::FrameHeader header;
  header.opcode = opcode;
  header.flags = flags;
  header.sequence = sequence;
  return transport::write_one_frame(socket.get(), header, {}, {}, deadline);
}

StatusCode code_of(schema::Refusal::Reason reason) {
  switch (reason) {
    case schema::Refusal::Reason::VERSION: return StatusCode::kVersion;
    case schema::Refusal::Reason::TOKEN: return StatusCode::kRefused;
    case schema::Refusal::Reason::NO_CAPACITY:
    case schema::Refusal::Reason::DRAINING: return StatusCode::kNoCapacity;
    case schema::Refusal::Reason::BAD_REQUEST: return StatusCode::kInvalidArgument;
    case schema::Refusal::Reason::DRIVER: return StatusCode::kDriver;
    case schema::Refusal::Reason::UNKNOWN: break;
  }
  return StatusCode::kProtocol;
}

// A Status with the server's name in front, for one clear line.
Status about(const Endpoint& endpoint, const Status& status) {
  return Status(status.code(), fmt::format("server {}: {}", endpoint.to_string(), status.message()));
}

struct Conversation {
  Fd socket;
  OwnedFrame answer;
};

// Connects, sends a hello as `opcode` and waits for the answer. A refusal becomes its Status.
Result<Conversation> ask(const Target& target, uint16_t opcode, Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(Fd socket, transport::tcp_connect(target.endpoint, deadline));
  Status sent = send_hello(socket, opcode, target.token, deadline);
  if (!sent.ok()) return about(target.endpoint, sent);
  auto answer = read_reply(socket, deadline);
  if (!answer) {
    const Status& status = answer.status();
    return about(target.endpoint, Status(status.code(), "connected, but it does not answer like a fargpud: " + status.message()));
  }
  if (answer->header.result != 0) {
    wire::SegmentReader reader(answer->body());
    auto refusal = reader.getRoot<schema::Refusal>();
    return about(target.endpoint, Status(code_of(refusal.getReason()), refusal.getMessage().cStr()));
  }
  return Conversation{std::move(socket), std::move(*answer)};
}

// Runs `work`; a malformed body (capnp throws) becomes kProtocol.
template <typename Work>
auto guarded(const Target& target, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const kj::Exception& error) {
    return about(target.endpoint, Status(StatusCode::kProtocol, std::string("malformed answer: ") + error.getDescription().cStr()));
  }
}

ServerStatus to_plain(schema::Status::Reader from) {
  ServerStatus to;
  to.version = from.getServerVersion().cStr();
  to.driver_name = from.getDriverName().cStr();
  to.driver_version = from.getDriverVersion();
  to.uptime_seconds = from.getUptimeSeconds();
  for (auto gpu : from.getGpus()) {
    to.gpus.push_back({gpu.getUuid().cStr(), gpu.getName().cStr(), gpu.getTotalBytes(), gpu.getReservedBytes(), gpu.getSessions()});
  }
  for (auto session : from.getSessions()) {
    SessionStatus& plain = to.sessions.emplace_back();
    plain.id = session.getId();
    plain.client = session.getClient().cStr();
    plain.peer = session.getPeer().cStr();
    plain.transport = session.getTransport().cStr();
    for (auto gpu : session.getGpus()) plain.gpus.emplace_back(gpu.cStr());
    plain.memory_limit_bytes = session.getMemoryLimitBytes();
    plain.memory_used_bytes = session.getMemoryUsedBytes();
    plain.calls = session.getCalls();
    plain.seconds = session.getSeconds();
    plain.worker_pid = session.getWorkerPid();
  }
  return to;
}

}  // namespace

Result<Target> target_from_environment() {
  FARGPU_ASSIGN_OR_RETURN(client::Settings settings, client::read_settings());
  if (settings.server.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "no server: give --server host:port, set FARGPU_SERVER, or use fargpu run --sim for a simulated GPU");
  }
  auto endpoint = parse_endpoint(settings.server);
  if (!endpoint) return Status(endpoint.status().code(), "server: " + endpoint.status().message());
  return Target{*endpoint, settings.token};
}

Result<ServerStatus> query_status(const Target& target, Deadline deadline) {
  return guarded(target, [&]() -> Result<ServerStatus> {
    FARGPU_ASSIGN_OR_RETURN(Conversation conversation, ask(target, wire::kStatus, deadline));
    wire::SegmentReader reader(conversation.answer.body());
    return to_plain(reader.getRoot<schema::Status>());
  });
}

Result<SessionProbe> probe_session(const Target& target, unsigned pings, Deadline deadline) {
  return guarded(target, [&]() -> Result<SessionProbe> {
    const auto begin = transport::Clock::now();
    FARGPU_ASSIGN_OR_RETURN(Conversation conversation, ask(target, wire::kHello, deadline));
    SessionProbe probe;
    probe.opening = std::chrono::duration_cast<std::chrono::microseconds>(transport::Clock::now() - begin);
    probe.transport = "tcp " + transport::peer_name(conversation.socket.get());
    wire::SegmentReader reader(conversation.answer.body());
    auto welcome = reader.getRoot<schema::Welcome>();
    probe.server_version = welcome.getServerVersion().cStr();
    probe.driver_name = welcome.getDriverName().cStr();
    probe.driver_version = welcome.getDriverVersion();
    probe.devices = welcome.getDevices().size();

    std::vector<std::chrono::nanoseconds> round_trips;
    for (uint32_t i = 0; i < pings; ++i) {
      const auto sent = transport::Clock::now();
      FARGPU_RETURN_IF_ERROR(send_empty(conversation.socket, wire::kPing, wire::kWantReply, 2 + i, deadline));
      auto pong = read_reply(conversation.socket, deadline);
      if (!pong) return about(target.endpoint, pong.status());
      round_trips.push_back(transport::Clock::now() - sent);
    }
    if (!round_trips.empty()) {
      auto middle = round_trips.begin() + static_cast<std::ptrdiff_t>(round_trips.size() / 2);
      std::nth_element(round_trips.begin(), middle, round_trips.end());
      probe.median_round_trip = *middle;
    }
    FARGPU_RETURN_IF_ERROR(send_empty(conversation.socket, wire::kBye, 0, 2 + pings, deadline));
    return probe;
  });
}

}  // namespace fargpu::cli
