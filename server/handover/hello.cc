#include "server/handover/hello.h"

#include <cuda.h>
#include <fmt/core.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstring>

#include "common/base/printable.h"
#include "common/bootstrap/agreement.h"
#include "common/wire/control.h"
#include "common/wire/data.h"
#include "common/wire/frame.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "server/handover/token.h"

namespace fargpu::server {
namespace {

constexpr size_t kMaxText = 4096;
constexpr size_t kMaxDevices = 64;
constexpr size_t kMaxTransports = 16;
constexpr uint32_t kMinBody = 64u << 10;
constexpr uint64_t kMinBulk = 64u << 10;
constexpr size_t kRefusalBytes = 8192;

schema::Refusal::Reason reason_of(StatusCode code, bool draining) {
  if (draining) return schema::Refusal::Reason::DRAINING;
  switch (code) {
    case StatusCode::kVersion:
      return schema::Refusal::Reason::VERSION;
    case StatusCode::kRefused:
      return schema::Refusal::Reason::TOKEN;
    case StatusCode::kNotFound:
      return schema::Refusal::Reason::JOB;
    case StatusCode::kNoCapacity:
      return schema::Refusal::Reason::NO_CAPACITY;
    case StatusCode::kInvalidArgument:
    case StatusCode::kProtocol:
      return schema::Refusal::Reason::BAD_REQUEST;
    case StatusCode::kDriver:
      return schema::Refusal::Reason::DRIVER;
    default:
      return schema::Refusal::Reason::UNKNOWN;
  }
}

// The result in the frame header of a refusal: what cuInit returns to the program.
CUresult result_of(StatusCode code) {
  switch (code) {
    case StatusCode::kVersion:
      return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case StatusCode::kRefused:
    case StatusCode::kNotFound:
      return CUDA_ERROR_NOT_PERMITTED;
    case StatusCode::kDriver:
      return CUDA_ERROR_SYSTEM_NOT_READY;
    default:
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
}

Status too_long(const char* what) {
  return {StatusCode::kProtocol, fmt::format("hello: {} is longer than allowed", what)};
}

// Fields that every protocol version has.
template <typename Reader>
Status read_version(Reader root, HelloRequest& hello) {
  hello.protocol_version = root.getProtocolVersion();
  if (root.getClientVersion().size() > kMaxText) return too_long("clientVersion");
  hello.client_version = printable(root.getClientVersion().cStr(), 64);
  return Status();
}

// Further fields that Hello and OpenJob share; the protocol version is known to be ours.
template <typename Reader>
Status read_common(Reader root, HelloRequest& hello) {
  if (root.getToken().size() > kMaxText) return too_long("token");
  if (root.getClientName().size() > kMaxText) return too_long("clientName");
  if (root.getDevices().size() > kMaxDevices) return too_long("devices");
  hello.token = root.getToken().cStr();
  hello.client_name = printable(root.getClientName().cStr(), 256);
  hello.placement.gpus = root.getGpus();
  hello.placement.memory_bytes = root.getMemoryBytes();
  for (const auto device : root.getDevices()) {
    if (device.size() > 64) return too_long("a name in devices");
    hello.placement.devices.push_back(printable(device.cStr(), 64));
  }
  FARGPU_ASSIGN_OR_RETURN(hello.knows, bootstrap::read_knows(root));
  return Status();
}

Result<std::optional<bootstrap::JobTicket>> read_ticket(schema::Hello::Reader root) {
  const auto key = root.getJobKey();
  bootstrap::JobTicket ticket;
  ticket.id = root.getJobId();
  if (key.size() == 0 && ticket.id == 0) return std::optional<bootstrap::JobTicket>();
  if (key.size() != ticket.key.size())
    return Status(StatusCode::kProtocol, "hello: a job's key has 16 bytes");
  std::memcpy(ticket.key.data(), key.begin(), key.size());
  return std::optional(ticket);
}

// A whole frame, `builder`'s message behind its header at the start of `slot`.
std::vector<std::byte> finish(std::span<std::byte> slot, wire::SlotMessageBuilder& builder,
                              wire::FrameHeader header) {
  header.flags = wire::kReply;
  header.body_bytes = static_cast<uint32_t>(builder.used_bytes());
  std::memcpy(slot.data(), &header, sizeof header);
  return std::vector<std::byte>(
      slot.begin(), slot.begin() + static_cast<ptrdiff_t>(sizeof header + header.body_bytes));
}

}  // namespace

// FNV-1a; never 0 for a host that is known.
uint64_t processes_of(const std::string& host, uint64_t pid_namespace) {
  if (host.empty() || pid_namespace == 0) return 0;
  uint64_t digest = 0xcbf29ce484222325;
  for (const char c : host + std::to_string(pid_namespace))
    digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return digest | 1;
}

Result<HelloRequest> parse_hello(std::span<const std::byte> body) {
  try {
    wire::SegmentReader reader(body);
    const auto root = reader.getRoot<schema::Hello>();
    HelloRequest hello;
    FARGPU_RETURN_IF_ERROR(read_version(root, hello));
    // A client of another version may mean other fields: only the version counts then.
    if (hello.protocol_version != wire::kProtocolVersion) return hello;
    FARGPU_RETURN_IF_ERROR(read_common(root, hello));
    if (root.getTransports().size() > kMaxTransports) return too_long("transports");
    // A name that this version does not know is for a newer server.
    for (const auto name : root.getTransports()) {
      const auto known = bootstrap::parse_upgrade(name.cStr());
      if (known && std::find(hello.transports.begin(), hello.transports.end(), *known) ==
                       hello.transports.end()) {
        hello.transports.push_back(*known);
      }
    }
    hello.host_id = printable(root.getHostId().cStr(), 64);
    hello.process = {processes_of(hello.host_id, root.getPidNamespace()), root.getPid()};
    hello.ended_session = root.getEndedSession();
    hello.connections = std::max<uint16_t>(1, root.getConnections());
    hello.max_body_bytes = root.getMaxBodyBytes();
    hello.max_bulk_bytes = root.getMaxBulkBytes();
    FARGPU_ASSIGN_OR_RETURN(hello.job, read_ticket(root));
    return hello;
  } catch (const kj::Exception& error) {
    return Status(StatusCode::kProtocol, fmt::format("hello: {}", error.getDescription().cStr()));
  }
}

Result<HelloRequest> parse_open_job(std::span<const std::byte> body) {
  try {
    wire::SegmentReader reader(body);
    const auto root = reader.getRoot<schema::OpenJob>();
    HelloRequest hello;
    FARGPU_RETURN_IF_ERROR(read_version(root, hello));
    if (hello.protocol_version != wire::kProtocolVersion) return hello;
    FARGPU_RETURN_IF_ERROR(read_common(root, hello));
    return hello;
  } catch (const kj::Exception& error) {
    return Status(StatusCode::kProtocol,
                  fmt::format("opening of a job: {}", error.getDescription().cStr()));
  }
}

Result<JoinRequest> parse_join(std::span<const std::byte> body) {
  try {
    wire::SegmentReader reader(body);
    const auto root = reader.getRoot<schema::Join>();
    JoinRequest join{root.getProtocolVersion(), root.getSessionId(), root.getIndex(), {}};
    const auto key = root.getSessionKey();
    const auto* bytes = reinterpret_cast<const std::byte*>(key.begin());
    join.key.assign(bytes, bytes + key.size());
    return join;
  } catch (const kj::Exception& error) {
    return Status(StatusCode::kProtocol, fmt::format("join: {}", error.getDescription().cStr()));
  }
}

Status check_identity(const HelloRequest& hello, const HelloRules& rules) {
  if (hello.protocol_version != rules.protocol_version) {
    return {
        StatusCode::kVersion,
        fmt::format("the client (fargpu {}) speaks protocol version {}, this server (fargpu {}) "
                    "{}; install the same release of fargpu on both machines",
                    hello.client_version.empty() ? "?" : hello.client_version,
                    hello.protocol_version, FARGPU_VERSION, rules.protocol_version)};
  }
  if (!rules.token.empty() && !same_token(rules.token, hello.token)) {
    return {StatusCode::kRefused,
            hello.token.empty()
                ? "this server asks for a token; set FARGPU_TOKEN or use --token-file"
                : "the token is wrong; ask the server's operator for the current one"};
  }
  return Status();
}

Status check_opener(const HelloRequest& hello, const HelloRules& rules) {
  FARGPU_RETURN_IF_ERROR(check_identity(hello, rules));
  return hello.knows.empty() ? bootstrap::too_old("the client", hello.client_version) : Status();
}

Status check_hello(const HelloRequest& hello, const HelloRules& rules) {
  FARGPU_RETURN_IF_ERROR(check_opener(hello, rules));
  if (hello.max_body_bytes < kMinBody || hello.max_bulk_bytes < kMinBulk) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("the client accepts frames of {} and {} bytes; at least {} and {} are needed",
                    hello.max_body_bytes, hello.max_bulk_bytes, kMinBody, kMinBulk)};
  }
  return Status();
}

std::vector<std::byte> encode_refusal(uint16_t opcode, uint32_t sequence, const Status& why,
                                      bool draining) {
  std::vector<uint64_t> words(kRefusalBytes / sizeof(uint64_t));
  const std::span slot(reinterpret_cast<std::byte*>(words.data()), kRefusalBytes);
  wire::SlotMessageBuilder builder(slot.subspan(sizeof(wire::FrameHeader)));
  auto refusal = builder.initRoot<schema::Refusal>();
  refusal.setReason(reason_of(why.code(), draining));
  refusal.setMessage(why.message().substr(0, kMaxText));
  wire::FrameHeader header;
  header.opcode = opcode;
  header.sequence = sequence;
  header.result = result_of(why.code());
  return finish(slot, builder, header);
}

std::vector<std::byte> encode_session_end(uint32_t sequence, SessionState state,
                                          const std::string& why) {
  constexpr size_t kMostWhy = 1024;
  std::vector<uint64_t> words(64 + kMostWhy / 8);
  const std::span slot = std::as_writable_bytes(std::span(words));
  wire::SlotMessageBuilder builder(slot.subspan(sizeof(wire::FrameHeader)));
  auto end = builder.initRoot<schema::SessionEnd>();
  end.setState(state == SessionState::kLives   ? schema::SessionEnd::State::LIVES
               : state == SessionState::kEnded ? schema::SessionEnd::State::ENDED
                                               : schema::SessionEnd::State::UNKNOWN);
  end.setWhy(why.substr(0, kMostWhy));
  wire::FrameHeader header;
  header.opcode = wire::kSessionEnd;
  header.sequence = sequence;
  return finish(slot, builder, header);
}

std::vector<std::byte> encode_job_opened(uint32_t sequence, const bootstrap::JobTicket& ticket,
                                         uint64_t daemon, const std::vector<std::string>& gpus) {
  std::vector<uint64_t> words(64 + gpus.size() * 16 + wire::OpcodeSet::kMaxBytes / 8);
  const std::span slot = std::as_writable_bytes(std::span(words));
  wire::SlotMessageBuilder builder(slot.subspan(sizeof(wire::FrameHeader)));
  auto opened = builder.initRoot<schema::JobOpened>();
  opened.setJobId(ticket.id);
  opened.setJobKey(wire::as_data(ticket.key));
  auto list = opened.initGpus(static_cast<unsigned>(gpus.size()));
  for (unsigned i = 0; i < gpus.size(); ++i) list.set(i, gpus[i].substr(0, 64));
  opened.setServerVersion(FARGPU_VERSION);
  opened.setDaemonId(daemon);
  bootstrap::set_knows(opened);
  wire::FrameHeader header;
  header.opcode = wire::kOpenJob;
  header.sequence = sequence;
  return finish(slot, builder, header);
}

}  // namespace fargpu::server
