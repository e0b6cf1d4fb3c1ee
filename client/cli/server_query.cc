#include "client/cli/server_query.h"

#include <fmt/core.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <variant>

#include "client/cli/environment.h"
#include "client/cli/exit_codes.h"
#include "client/settings/settings.h"
#include "common/base/env.h"
#include "common/base/printable.h"
#include "common/bootstrap/agreement.h"
#include "common/bootstrap/open_session.h"
#include "common/rpc/channel.h"
#include "common/transport/remote_memory.h"
#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "schema/support/sizes.h"

namespace fargpu::cli {

namespace {

using transport::Clock;
using transport::Deadline;

// A Status that names the server, for one clear line. That of a failed connect does so by itself.
Status about(const Target& target, const Status& status) {
  const auto& where = target.address.where;
  const auto* endpoint = std::get_if<Endpoint>(&where);
  const std::string place = endpoint ? endpoint->to_string() : std::get<std::string>(where);
  if (status.message().find(place) != std::string::npos) return status;
  return Status(status.code(),
                fmt::format("server {}: {}", target.address.to_string(), status.message()));
}

// The earlier one of a deadline and a timeout that begins now.
Deadline within(Deadline deadline, std::chrono::microseconds timeout) {
  return std::min<Deadline>(deadline, Clock::now() + timeout);
}

// Asks the daemon itself, which answers at once.
Result<bootstrap::Conversation> ask(const Target& target, const bootstrap::Greeting& greeting,
                                    Deadline deadline) {
  if (target.answer_timeout) deadline = within(deadline, *target.answer_timeout);
  auto conversation = bootstrap::ask(target.address, greeting,
                                     {within(deadline, target.connect_timeout), deadline, {}});
  if (!conversation.ok()) return about(target, conversation.status());
  return conversation;
}

bootstrap::Greeting greeting_of(const Target& target, uint16_t opcode) {
  return {.opcode = opcode,
          .program = "fargpu",
          .token = target.token,
          .why_no_token = target.why_no_token};
}

// Ignores all notices: the session is only for measuring.
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
    return about(target, Status(StatusCode::kProtocol,
                                std::string("malformed answer: ") + error.getDescription().cStr()));
  }
}

// What the server lacks of our calls, by name.
std::vector<std::string> lacking(const wire::OpcodeSet& known) {
  std::vector<std::string> names;
  for (const uint16_t opcode : schema::message_opcodes())
    if (!known.contains(opcode)) names.emplace_back(schema::opcode_name(opcode));
  return names;
}

// A server's text, for a terminal.
std::string shown(capnp::Text::Reader text) {
  constexpr size_t kMost = 256;
  return printable_line(text.cStr(), kMost);
}

ServerStatus to_plain(schema::Status::Reader from) {
  ServerStatus to;
  to.version = shown(from.getServerVersion());
  to.driver_name = shown(from.getDriverName());
  to.driver_version = from.getDriverVersion();
  const auto known = bootstrap::read_knows(from);
  to.agrees = known.ok() && !known->empty();
  if (to.agrees) to.lacks = lacking(*known);
  to.uptime_seconds = from.getUptimeSeconds();
  for (auto gpu : from.getGpus()) {
    to.gpus.push_back({shown(gpu.getUuid()), shown(gpu.getName()), gpu.getTotalBytes(),
                       gpu.getReservedBytes(), gpu.getSessions(), gpu.getJobs(),
                       shown(gpu.getOutOfService())});
  }
  for (auto session : from.getSessions()) {
    SessionStatus& plain = to.sessions.emplace_back();
    plain.id = session.getId();
    plain.client = shown(session.getClient());
    plain.peer = shown(session.getPeer());
    plain.transport = session.getHangs() ? "hangs" : shown(session.getTransport());
    for (auto gpu : session.getGpus()) plain.gpus.emplace_back(shown(gpu));
    plain.memory_limit_bytes = session.getMemoryLimitBytes();
    plain.memory_used_bytes = session.getMemoryUsedBytes();
    plain.calls = session.getCalls();
    plain.seconds = session.getSeconds();
    plain.worker_pid = session.getWorkerPid();
    plain.job = session.getJob();
  }
  for (auto job : from.getJobs()) {
    JobStatus& plain = to.jobs.emplace_back();
    plain.id = job.getId();
    plain.client = shown(job.getClient());
    plain.peer = shown(job.getPeer());
    for (auto gpu : job.getGpus()) plain.gpus.emplace_back(shown(gpu));
    plain.memory_limit_bytes = job.getMemoryLimitBytes();
    for (auto bytes : job.getMemoryUsedBytes()) plain.memory_used_bytes.push_back(bytes);
    plain.held = job.getHeld();
    plain.seconds = job.getSeconds();
    plain.ends_in_seconds = job.getEndsInSeconds();
  }
  return to;
}

// The numbers are those of the server's DirectMemory::Access.
Result<std::string> ask_device_memory(rpc::Channel& channel, const wire::OpcodeSet& known) {
  if (!known.contains(schema::op_fgDirectProbe))
    return std::string("unknown: the server is too old to be asked");
  rpc::Reply reply;
  rpc::Channel::Call call(channel, schema::op_fgDirectProbe, 0,
                          schema::fixed_bytes<schema::FgDirectProbeParams>());
  call.init<schema::FgDirectProbeParams>();
  FARGPU_RETURN_IF_ERROR(call.call(reply));
  if (reply.result != 0)
    return fmt::format("unknown: the server could not try it, error {}", reply.result);
  const auto results = reply.root<schema::FgDirectProbeResults>();
  const std::string why = results.getReason();
  const std::string because = why.empty() ? "" : " (" + why + ")";
  switch (results.getWay()) {
    case 1:
      return fmt::format("GPUDirect by dma-buf, from {} KiB on{}", results.getFromBytes() >> 10,
                         because);
    case 2:
      return fmt::format("GPUDirect by peer memory, from {} KiB on{}", results.getFromBytes() >> 10,
                         because);
    default:
      return "staged" + because;
  }
}

}  // namespace

Result<std::vector<Target>> targets_from_environment() {
  FARGPU_RETURN_IF_ERROR(check_files());
  const auto read = client::read_settings();
  if (!read.ok()) return as_given(read.status());
  const client::Settings& settings = *read;
  if (settings.server.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "no server: give --server host:port, set FARGPU_SERVER, or use fargpu run --sim "
                  "for a simulated GPU");
  }
  auto servers = bootstrap::split_servers(settings.server);
  if (!servers) return Status(servers.status().code(), "server: " + servers.status().message());
  std::vector<Target> targets;
  for (const std::string& server : *servers) {
    FARGPU_ASSIGN_OR_RETURN(auto address, bootstrap::parse_server(server));
    const std::string& token = settings.tokens.of(address);
    const std::string why_none = settings.tokens.why_none(address);
    targets.push_back({std::move(address),
                       token,
                       why_none,
                       {settings.transport, settings.connections, settings.spin},
                       settings.connect_timeout,
                       env_text("FARGPU_CONNECT_TIMEOUT") ? std::optional(settings.connect_timeout)
                                                          : std::nullopt});
  }
  return targets;
}

int for_each_server(const std::vector<Target>& targets,
                    const std::function<int(const Target&)>& show) {
  int code = kSuccess;
  for (const Target& target : targets) {
    if (targets.size() > 1) {
      std::printf("%sserver %s\n", &target == targets.data() ? "" : "\n",
                  target.address.to_string().c_str());
      std::fflush(stdout);
    }
    const int shown = show(target);
    if (code == kSuccess) code = shown;
  }
  return code;
}

Result<JobWish> wish_from_environment() {
  FARGPU_ASSIGN_OR_RETURN(client::Settings settings, client::read_settings());
  return JobWish{settings.gpus, settings.memory_bytes, std::move(settings.devices), "", 0};
}

namespace {

// A server that does not know jobs yet says that the request is bad, and so does one that finds
// something wrong in it. The status, which every server gives, tells which of them this is.
Status why_no_job(const Target& target, const Status& refusal, Deadline deadline) {
  if (refusal.code() != StatusCode::kInvalidArgument && refusal.code() != StatusCode::kVersion)
    return refusal;
  const auto server = query_status(target, deadline);
  if (!server.ok() || server->agrees) return refusal;
  return about(target, bootstrap::too_old("the server", server->version));
}

}  // namespace

Result<OpenedJob> open_job(const Target& target, const JobWish& wish, Deadline deadline) {
  return guarded(target, [&]() -> Result<OpenedJob> {
    bootstrap::Greeting greeting = greeting_of(target, wire::kOpenJob);
    greeting.program = wish.program;
    greeting.pid = wish.pid;
    greeting.gpus = wish.gpus;
    greeting.memory_bytes = wish.memory_bytes;
    greeting.devices = wish.devices;
    auto asked = ask(target, greeting, deadline);
    if (!asked.ok()) return why_no_job(target, asked.status(), deadline);
    bootstrap::Conversation conversation = std::move(*asked);
    const auto known = bootstrap::opcodes_of_job(conversation.answer.body());
    if (!known.ok()) return why_no_job(target, about(target, known.status()), deadline);
    wire::SegmentReader reader(conversation.answer.body());
    const auto opened = reader.getRoot<schema::JobOpened>();
    bootstrap::JobTicket ticket;
    ticket.id = opened.getJobId();
    const auto key = opened.getJobKey();
    if (ticket.id == 0 || key.size() != ticket.key.size())
      return about(target, Status(StatusCode::kProtocol, "malformed answer: no job"));
    std::memcpy(ticket.key.data(), key.begin(), key.size());
    return OpenedJob{std::move(conversation.socket), ticket, opened.getDaemonId()};
  });
}

Result<ServerStatus> query_status(const Target& target, Deadline deadline) {
  return guarded(target, [&]() -> Result<ServerStatus> {
    FARGPU_ASSIGN_OR_RETURN(bootstrap::Conversation conversation,
                            ask(target, greeting_of(target, wire::kStatus), deadline));
    wire::SegmentReader reader(conversation.answer.body());
    return to_plain(reader.getRoot<schema::Status>());
  });
}

Result<SessionProbe> probe_session(const Target& target, const JobWish& wish, unsigned pings,
                                   Deadline deadline) {
  return guarded(target, [&]() -> Result<SessionProbe> {
    const auto begin = Clock::now();
    bootstrap::Greeting greeting = greeting_of(target, wire::kHello);
    greeting.gpus = wish.gpus;
    greeting.memory_bytes = wish.memory_bytes;
    greeting.devices = wish.devices;
    greeting.job = wish.job;
    auto opened =
        bootstrap::open_session(target.address, greeting, target.link,
                                {within(deadline, target.connect_timeout), deadline, deadline});
    if (!opened) return about(target, opened.status());
    wire::SegmentReader reader(opened->welcome.body());
    const auto welcome = reader.getRoot<schema::Welcome>();
    bootstrap::Upgraded* const made = &opened->link;
    SessionProbe probe;
    probe.opening = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    probe.transport = made->describe();
    probe.reason = made->reason;
    probe.failures = made->failures;
    probe.server_version = shown(welcome.getServerVersion());
    probe.driver_name = shown(welcome.getDriverName());
    probe.driver_version = welcome.getDriverVersion();
    probe.devices = welcome.getDevices().size();

    probe.same_host = made->transport->capabilities().same_host;
    const transport::RemoteMemory* const remote_memory = made->transport->remote_memory();
    if (remote_memory != nullptr) probe.route = remote_memory->route();
    NoNotices nobody;
    rpc::Channel channel(std::move(made->transport), nobody, {}, std::move(made->bulk));
    if (remote_memory != nullptr) {
      FARGPU_ASSIGN_OR_RETURN(probe.device_memory, ask_device_memory(channel, opened->known));
    }
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
