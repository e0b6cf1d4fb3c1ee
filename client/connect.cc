// The way from settings to a session: connect, Hello, Welcome or Refusal.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/session.h"
#include "common/base/fd.h"
#include "common/base/parse.h"
#include "common/transport/frame_io.h"
#include "common/transport/stream.h"
#include "common/transport/tcp.h"
#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

using transport::Clock;
using transport::Deadline;

constexpr size_t kHelloWords = 8192;

Result<Fd> connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("FARGPU_SERVER: the socket path {} is longer than {} bytes", path,
                              sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return system_error("socket", errno);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Status(StatusCode::kLost, fmt::format("{}: {}", path, std::strerror(errno)));
  }
  return fd;
}

Result<Fd> connect_socket(const std::string& server, Deadline deadline) {
  if (server.starts_with("unix:")) return connect_unix(server.substr(5));
  if (server.starts_with("/")) return connect_unix(server);
  const auto endpoint = parse_endpoint(server);
  if (!endpoint)
    return Status(endpoint.status().code(), "FARGPU_SERVER: " + endpoint.status().message());
  return transport::tcp_connect(*endpoint, deadline);
}

std::string client_name() {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}:{} {}", host, ::getpid(), program_invocation_short_name);
}

size_t build_hello(const Settings& settings, const wire::FrameLimits& limits,
                   std::span<std::byte> slot) {
  wire::SlotMessageBuilder builder(slot);
  auto hello = builder.initRoot<schema::Hello>();
  hello.setProtocolVersion(wire::kProtocolVersion);
  hello.setRegistryHash(schema::kRegistryHash);
  hello.setClientVersion(FARGPU_VERSION);
  hello.setCudaVersion(CUDA_VERSION);
  hello.setToken(settings.token);
  hello.setGpus(settings.gpus);
  hello.setMemoryBytes(settings.memory_bytes);
  auto devices = hello.initDevices(static_cast<unsigned>(settings.devices.size()));
  for (unsigned i = 0; i < settings.devices.size(); ++i) devices.set(i, settings.devices[i]);
  hello.setClientName(client_name());
  hello.setMaxBodyBytes(limits.max_body_bytes);
  hello.setMaxBulkBytes(limits.max_bulk_bytes);
  return builder.used_bytes();
}

Status refusal(schema::Refusal::Reader reader) {
  std::string message = reader.getMessage();
  switch (reader.getReason()) {
    case schema::Refusal::Reason::VERSION:
      return {StatusCode::kVersion, std::move(message)};
    case schema::Refusal::Reason::TOKEN:
      return {StatusCode::kRefused, std::move(message)};
    case schema::Refusal::Reason::NO_CAPACITY:
    case schema::Refusal::Reason::DRAINING:
      return {StatusCode::kNoCapacity, std::move(message)};
    case schema::Refusal::Reason::DRIVER:
      return {StatusCode::kDriver, std::move(message)};
    case schema::Refusal::Reason::BAD_REQUEST:
      return {StatusCode::kInvalidArgument, std::move(message)};
    default:
      return {StatusCode::kUnsupported, std::move(message)};
  }
}

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

Snapshot read_welcome(schema::Welcome::Reader welcome, const Settings& settings) {
  Snapshot snapshot;
  snapshot.session_id = welcome.getSessionId();
  snapshot.server_version = welcome.getServerVersion();
  snapshot.driver_version = welcome.getDriverVersion();
  snapshot.driver_name = welcome.getDriverName();
  snapshot.max_bulk_bytes = welcome.getMaxBulkBytes();
  snapshot.max_body_bytes = welcome.getMaxBodyBytes();
  snapshot.unavailable.resize(1u << 16);
  for (const uint16_t opcode : welcome.getUnavailable()) snapshot.unavailable[opcode] = true;
  std::vector<Device> devices;
  std::vector<std::array<uint8_t, 16>> uuids;
  for (const auto reader : welcome.getDevices()) {
    devices.push_back(read_device(reader, static_cast<int>(devices.size())));
    uuids.push_back(devices.back().uuid);
  }
  for (const int ordinal : visible_ordinals(settings.visible_devices, uuids)) {
    snapshot.devices.push_back(devices[static_cast<size_t>(ordinal)]);
  }
  return snapshot;
}

}  // namespace

Result<std::unique_ptr<Session>> connect(Settings settings) {
  if (settings.server.empty()) {
    return Status(
        StatusCode::kNotFound,
        "FARGPU_SERVER is not set; start the program with `fargpu run --server HOST:PORT -- ...`");
  }
  const Deadline deadline = Clock::now() + settings.connect_timeout;
  FARGPU_ASSIGN_OR_RETURN(Fd socket, connect_socket(settings.server, deadline));

  const wire::FrameLimits limits;
  std::vector<uint64_t> words(kHelloWords);
  const std::span slot(reinterpret_cast<std::byte*>(words.data()), kHelloWords * 8);
  try {
    const size_t bytes = build_hello(settings, limits, slot);
    wire::FrameHeader header;
    header.opcode = wire::kHello;
    header.flags = wire::kWantReply;
    header.sequence = 1;
    FARGPU_RETURN_IF_ERROR(
        transport::write_one_frame(socket.get(), header, slot.first(bytes), {}, deadline));
  } catch (const kj::Exception&) {
    return Status(StatusCode::kInvalidArgument,
                  "the hello is too long: FARGPU_TOKEN or FARGPU_DEVICES");
  }
  // The worker starts its driver before it answers: allow for that beyond the time to connect.
  constexpr auto kWorkerStart = std::chrono::seconds(60);
  FARGPU_ASSIGN_OR_RETURN(
      const transport::OwnedFrame answer,
      transport::read_one_frame(socket.get(), limits, Clock::now() + kWorkerStart));
  if (answer.header.opcode != wire::kHello || (answer.header.flags & wire::kReply) == 0) {
    return Status(StatusCode::kProtocol, "the server's first frame does not answer the hello");
  }
  try {
    wire::SegmentReader reader(answer.body());
    if (answer.header.result != 0) return refusal(reader.getRoot<schema::Refusal>());
    Snapshot snapshot = read_welcome(reader.getRoot<schema::Welcome>(), settings);
    transport::StreamOptions stream;
    stream.receive_limits = limits;
    stream.max_send_body_bytes = snapshot.max_body_bytes;
    rpc::ChannelOptions options;
    options.limits = limits;
    options.sync_all = settings.sync_all;
    auto session = std::make_unique<Session>(std::move(settings), std::move(snapshot));
    FARGPU_ASSIGN_OR_RETURN(auto transport,
                            transport::from_fd(std::move(socket), std::move(stream)));
    session->attach(std::move(transport), options);
    return session;
  } catch (const kj::Exception&) {
    return Status(StatusCode::kProtocol, "the server's answer to the hello is malformed");
  }
}

}  // namespace fargpu::client
