// The way from settings to sessions: connect, Hello, Welcome or Refusal.
#include <cuda.h>
#include <fmt/core.h>
#include <kj/exception.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/process/devices.h"
#include "client/process/process.h"
#include "client/process/session.h"
#include "client/process/silent_calls.h"
#include "client/settings/job.h"
#include "common/base/descriptors.h"
#include "common/base/id_text.h"
#include "common/base/log.h"
#include "common/bootstrap/open_session.h"
#include "common/host/thread.h"
#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

using transport::Clock;
using transport::Deadline;

Device read_device(schema::Device::Reader reader, int ordinal) {
  Device device;
  device.worker_ordinal = ordinal;
  device.name = reader.getName();
  const auto uuid = reader.getUuid();
  std::memcpy(device.uuid.data(), uuid.begin(), std::min(uuid.size(), device.uuid.size()));
  device.total_bytes = reader.getTotalBytes();
  for (const auto attribute : reader.getAttributes())
    device.set(attribute.getId(), attribute.getValue());
  const auto luid = reader.getLuid();
  device.has_luid = luid.size() == device.luid.size();
  if (device.has_luid) std::memcpy(device.luid.data(), luid.begin(), luid.size());
  device.luid_node_mask = reader.getLuidNodeMask();
  device.pci_bus_id = reader.getPciBusId();
  device.least_priority = reader.getLeastPriority();
  device.greatest_priority = reader.getGreatestPriority();
  device.hide_what_does_not_work();
  return device;
}

// With all devices that the server gives.
Snapshot read_welcome(schema::Welcome::Reader welcome) {
  Snapshot snapshot;
  snapshot.session_id = welcome.getSessionId();
  snapshot.driver_version = welcome.getDriverVersion();
  snapshot.driver_name = welcome.getDriverName();
  snapshot.max_bulk_bytes = welcome.getMaxBulkBytes();
  snapshot.max_body_bytes = welcome.getMaxBodyBytes();
  for (const uint16_t opcode : welcome.getUnavailable()) snapshot.unavailable.insert(opcode);
  for (const auto reader : welcome.getDevices()) {
    const auto ordinal = static_cast<int>(snapshot.devices.size());
    snapshot.devices.push_back(read_device(reader, ordinal));
    snapshot.capabilities.push_back(snapshot.devices.back().compute_capability());
  }
  return snapshot;
}

// What becomes a session when the devices of all servers are known.
struct Opened {
  uint64_t daemon = 0;  // its id
  Link::Server server;
  Snapshot snapshot;
  std::unique_ptr<transport::Transport> transport, bulk;
  rpc::ChannelOptions options;
};

Result<Opened> open(const std::string& server, const std::optional<bootstrap::JobTicket>& job,
                    const Settings& settings) {
  FARGPU_ASSIGN_OR_RETURN(const auto address, bootstrap::parse_server(server));
  const Deadline deadline = Clock::now() + settings.connect_timeout;
  // The worker starts its driver before it answers: allow for that beyond the time to connect.
  constexpr auto kWorkerStart = std::chrono::seconds(60), kConversation = std::chrono::seconds(30);
  const bootstrap::Patience patience{deadline, deadline + kWorkerStart,
                                     deadline + kWorkerStart + kConversation};
  const bootstrap::Greeting greeting{.opcode = wire::kHello,
                                     .program = program_invocation_short_name,
                                     .token = settings.tokens.of(address),
                                     .why_no_token = settings.tokens.why_none(address),
                                     .cuda_version = CUDA_VERSION,
                                     .gpus = settings.gpus,
                                     .memory_bytes = settings.memory_bytes,
                                     .devices = settings.devices,
                                     .limits = {},
                                     .job = job};
  FARGPU_ASSIGN_OR_RETURN(
      bootstrap::OpenedSession opened,
      bootstrap::open_session(address, greeting,
                              {settings.transport, settings.connections, settings.spin}, patience));
  bootstrap::Upgraded& made = opened.link;
  try {
    wire::SegmentReader reader(opened.welcome.body());
    const auto welcome = reader.getRoot<schema::Welcome>();
    Snapshot snapshot = read_welcome(welcome);
    hide_what_server_lacks(snapshot.devices, opened.known);
    for (const std::string& failure : made.failures) {
      log::warn("going on over {}, because a better transport failed: {}", made.describe(),
                failure);
    }
    log::info("session {} over {}: {}", id_text(snapshot.session_id), made.describe(), made.reason);
    rpc::ChannelOptions options;
    options.limits = greeting.limits;
    options.sync_all = settings.sync_all;
    options.tells_nothing = tells_nothing;
    return Opened{welcome.getDaemonId(), {welcome.getServerVersion(), opened.known},
                  std::move(snapshot),   std::move(made.transport),
                  std::move(made.bulk),  options};
  } catch (const kj::Exception&) {
    return Status(StatusCode::kProtocol, "the server's answer to the hello is malformed");
  }
}

using Sessions = std::vector<std::unique_ptr<Session>>;

Result<Sessions> connect_to(const std::vector<std::string>& servers,
                            const std::vector<bootstrap::JobTicket>& jobs, Tables& tables,
                            const Settings& settings) {
  std::vector<Opened> all;
  bootstrap::DistinctServers distinct;
  for (size_t i = 0; i < servers.size(); ++i) {
    const std::string& server = servers[i];
    const auto job = jobs.empty() ? std::nullopt : std::optional(jobs[i]);
    auto opened = open(server, job, settings);
    if (!opened.ok() && servers.size() > 1) {
      return Status(opened.status().code(),
                    fmt::format("server {}: {}", server, opened.status().message()));
    }
    if (!opened.ok()) return opened.status();
    FARGPU_RETURN_IF_ERROR(distinct.add(server, opened->daemon));
    all.push_back(std::move(*opened));
  }
  std::vector<std::vector<Device>*> devices;
  devices.reserve(all.size());
  for (Opened& each : all) devices.push_back(&each.snapshot.devices);
  make_identities_unique(devices);
  choose_visible(devices, settings.visible_devices);
  std::vector<std::unique_ptr<Session>> sessions;
  for (size_t i = 0; i < all.size(); ++i) {
    Settings own = settings;
    own.server = servers[i];
    sessions.push_back(std::make_unique<Session>(SessionIdentity{tables, static_cast<unsigned>(i)},
                                                 std::move(own), std::move(all[i].server),
                                                 std::move(all[i].snapshot)));
    sessions.back()->attach(std::move(all[i].transport), std::move(all[i].bulk), all[i].options);
  }
  return sessions;
}

}  // namespace

Result<std::vector<std::unique_ptr<Session>>> connect(Tables& tables, const Settings& settings) {
  if (settings.server.empty()) {
    return Status(
        StatusCode::kNotFound,
        "FARGPU_SERVER is not set; start the program with `fargpu run --server HOST:PORT -- ...`");
  }
  const auto servers = bootstrap::split_servers(settings.server);
  if (!servers.ok())
    return Status(servers.status().code(), "FARGPU_SERVER: " + servers.status().message());
  static_assert(bootstrap::kMaxServers <= Process::kMaxSessions);
  // Before there are threads of ours.
  FARGPU_ASSIGN_OR_RETURN(const auto jobs, jobs_of_this_process(servers->size()));
  Result<Sessions> sessions = Status(StatusCode::kSystem, "no thread connected");
  on_own_stack([&] {
    // Libraries that find hosts, encrypt or know adapters open files as they like.
    const descriptors::StandardTaken taken;
    sessions = connect_to(*servers, jobs, tables, settings);
  });
  return sessions;
}

}  // namespace fargpu::client
