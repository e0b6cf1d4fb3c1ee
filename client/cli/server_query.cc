#include "client/cli/server_query.h"

#include <fmt/format.h>
#include <kj/exception.h>

#include <algorithm>

#include "client/settings.h"
#include "common/base/fd.h"
#include "common/bootstrap/greeting.h"
#include "common/bootstrap/upgrade.h"
#include "common/rpc/channel.h"
#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"

namespace fargpu::cli {

namespace {

using transport::Clock;
using transport::Deadline;
using transport::OwnedFrame;

// A Status with the server's name in front, for one clear line.
Status about(const Target& target, const Status& status) {
  return Status(status.code(), fmt::format("server {}: {}", target.address.to_string(), status.message()));
}

struct Conversation {
  Fd socket;
  OwnedFrame answer;
};

// Connects, sends a hello as `opcode` and waits for the answer.
Result<Conversation> ask(const Target& target, uint16_t opcode, Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(Fd socket, bootstrap::connect_server(target.address, deadline));
  bootstrap::Greeting greeting{.opcode = opcode, .program = "fargpu", .token = target.token};
  if (opcode == wire::kHello) greeting.upgrades = target.transport.upgrades;
  auto answer = bootstrap::greet(socket.get(), greeting, deadline, deadline);
  if (answer.ok()) return Conversation{std::move(socket), std::move(*answer)};
  const StatusCode code = answer.status().code();
  if (code == StatusCode::kProtocol || code == StatusCode::kLost || code == StatusCode::kTimeout) {
    return about(target, Status(code, "connected, but it does not answer like a fargpud: " + answer.status().message()));
  }
  return about(target, answer.status());
}

// A session that only measures has nothing to be told.
class NoNotices final : public rpc::NoticeSink {
 public:
  Status on_notice(const wire::FrameHeader&, rpc::Bytes, rpc::Bytes) override { return {}; }
  void on_async_error(uint16_t, uint32_t, uint16_t, int32_t) override {}
  void on_lost(const Status&) override {}
};

// Runs `work`; a malformed body (capnp throws) becomes kProtocol.
template <typename Work>
auto guarded(const Target& target, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const kj::Exception& error) {
    return about(target, Status(StatusCode::kProtocol, std::string("malformed answer: ") + error.getDescription().cStr()));
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
  auto address = bootstrap::parse_server(settings.server);
  if (!address) return Status(address.status().code(), "server: " + address.status().message());
  return Target{std::move(*address), settings.token, settings.transport, settings.spin};
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
    const auto begin = Clock::now();
    FARGPU_ASSIGN_OR_RETURN(Conversation conversation, ask(target, wire::kHello, deadline));
    wire::SegmentReader reader(conversation.answer.body());
    const auto welcome = reader.getRoot<schema::Welcome>();
    FARGPU_ASSIGN_OR_RETURN(const auto offers, bootstrap::read_offers(conversation.answer.body()));
    transport::StreamOptions stream;
    stream.max_send_body_bytes = welcome.getMaxBodyBytes();
    stream.spin = target.spin;
    auto made = bootstrap::upgrade_as_client(std::move(conversation.socket), target.transport, offers, stream, deadline);
    if (!made) return about(target, made.status());
    SessionProbe probe;
    probe.opening = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    probe.transport = made->transport->describe();
    probe.reason = made->reason;
    probe.failures = made->failures;
    probe.server_version = welcome.getServerVersion().cStr();
    probe.driver_name = welcome.getDriverName().cStr();
    probe.driver_version = welcome.getDriverVersion();
    probe.devices = welcome.getDevices().size();

    NoNotices nobody;
    rpc::Channel channel(std::move(made->transport), nobody, {});
    std::vector<std::chrono::nanoseconds> round_trips;
    for (uint32_t i = 0; i < pings; ++i) {
      const auto sent = Clock::now();
      if (Status status = channel.ping(deadline); !status.ok()) return about(target, status);
      round_trips.push_back(Clock::now() - sent);
    }
    if (!round_trips.empty()) {
      auto middle = round_trips.begin() + static_cast<std::ptrdiff_t>(round_trips.size() / 2);
      std::nth_element(round_trips.begin(), middle, round_trips.end());
      probe.median_round_trip = *middle;
    }
    channel.close(deadline);
    return probe;
  });
}

}  // namespace fargpu::cli
