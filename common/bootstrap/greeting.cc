#include "common/bootstrap/greeting.h"

#include <fmt/core.h>
#include <kj/exception.h>
#include <unistd.h>

#include <array>

#include "common/base/printable.h"
#include "common/bootstrap/agreement.h"
#include "common/host/host_identity.h"
#include "common/wire/control.h"
#include "common/wire/data.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"

namespace fargpu::bootstrap {
namespace {

constexpr size_t kHelloWords = 8192;  // the daemon takes 64 KiB

std::string client_name(const Greeting& greeting) {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}:{} {}", host, greeting.pid != 0 ? greeting.pid : ::getpid(),
                     greeting.program);
}

template <typename Builder>
void set_devices(Builder message, const Greeting& greeting) {
  auto devices = message.initDevices(static_cast<unsigned>(greeting.devices.size()));
  for (unsigned i = 0; i < greeting.devices.size(); ++i) devices.set(i, greeting.devices[i]);
}

size_t build_open_job(const Greeting& greeting, std::span<std::byte> slot) {
  wire::SlotMessageBuilder builder(slot);
  auto job = builder.initRoot<schema::OpenJob>();
  job.setProtocolVersion(wire::kProtocolVersion);
  job.setClientVersion(FARGPU_VERSION);
  job.setToken(greeting.token);
  job.setGpus(greeting.gpus);
  job.setMemoryBytes(greeting.memory_bytes);
  set_devices(job, greeting);
  job.setClientName(client_name(greeting));
  set_knows(job);
  return builder.used_bytes();
}

size_t build(const Greeting& greeting, std::span<std::byte> slot) {
  if (greeting.opcode == wire::kOpenJob) return build_open_job(greeting, slot);
  wire::SlotMessageBuilder builder(slot);
  auto hello = builder.initRoot<schema::Hello>();
  hello.setProtocolVersion(wire::kProtocolVersion);
  hello.setClientVersion(FARGPU_VERSION);
  hello.setCudaVersion(greeting.cuda_version);
  hello.setToken(greeting.token);
  hello.setGpus(greeting.gpus);
  hello.setMemoryBytes(greeting.memory_bytes);
  set_devices(hello, greeting);
  hello.setClientName(client_name(greeting));
  hello.setMaxBodyBytes(greeting.limits.max_body_bytes);
  hello.setMaxBulkBytes(greeting.limits.max_bulk_bytes);
  auto transports = hello.initTransports(static_cast<unsigned>(greeting.upgrades.size()));
  for (unsigned i = 0; i < greeting.upgrades.size(); ++i)
    transports.set(i, to_string(greeting.upgrades[i]));
  hello.setHostId(host_identity());
  hello.setConnections(greeting.connections);
  set_knows(hello, greeting.opcode == wire::kManage ? known_in_management() : known_opcodes());
  hello.setPid(greeting.pid != 0 ? greeting.pid : ::getpid());
  hello.setPidNamespace(pid_namespace());
  hello.setEndedSession(greeting.ended_session);
  if (greeting.job) {
    hello.setJobId(greeting.job->id);
    hello.setJobKey(wire::as_data(greeting.job->key));
  }
  return builder.used_bytes();
}

// A server's text: the program shows it on a terminal.
constexpr size_t kMostRefusal = 4096;

Status refusal(schema::Refusal::Reader reader, const std::string& why_no_token) {
  std::string message = printable_line(reader.getMessage().cStr(), kMostRefusal);
  switch (reader.getReason()) {
    case schema::Refusal::Reason::VERSION:
      return {StatusCode::kVersion, std::move(message)};
    case schema::Refusal::Reason::TOKEN:
      if (!why_no_token.empty()) return {StatusCode::kRefused, why_no_token};
      [[fallthrough]];
    case schema::Refusal::Reason::JOB:
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

// Sends the first frame of a connection and waits for its answer; a refusal becomes a Status.
Result<transport::OwnedFrame> exchange(int socket, uint16_t opcode, std::span<const std::byte> body,
                                       const wire::FrameLimits& limits,
                                       transport::Deadline send_deadline,
                                       transport::Deadline answer_deadline,
                                       const std::string& why_no_token = {}) {
  wire::FrameHeader header;
  header.opcode = opcode;
  header.flags = wire::kWantReply;
  header.sequence = 1;
  FARGPU_RETURN_IF_ERROR(transport::write_one_frame(socket, header, body, {}, send_deadline));
  FARGPU_ASSIGN_OR_RETURN(transport::OwnedFrame answer,
                          transport::read_one_frame(socket, limits, answer_deadline));
  if (answer.header.opcode != opcode || (answer.header.flags & wire::kReply) == 0) {
    return Status(StatusCode::kProtocol, "the server's first frame does not answer the hello");
  }
  if (answer.header.result == 0) return answer;
  try {
    wire::SegmentReader reader(answer.body());
    return refusal(reader.getRoot<schema::Refusal>(), why_no_token);
  } catch (const kj::Exception&) {
    return Status(StatusCode::kProtocol, "the server's refusal is malformed");
  }
}

}  // namespace

Result<transport::OwnedFrame> greet(int socket, const Greeting& greeting,
                                    transport::Deadline send_deadline,
                                    transport::Deadline answer_deadline) {
  std::vector<uint64_t> words(kHelloWords);
  const std::span<std::byte> slot = std::as_writable_bytes(std::span(words));
  size_t bytes = 0;
  try {
    bytes = build(greeting, slot);
  } catch (const kj::Exception&) {
    return Status(StatusCode::kInvalidArgument,
                  "the hello is too long: look at the token and the list of devices");
  }
  return exchange(socket, greeting.opcode, slot.first(bytes), greeting.limits, send_deadline,
                  answer_deadline, greeting.why_no_token);
}

Status greet_again(int socket, const JoinGreeting& greeting, transport::Deadline deadline) {
  std::array<uint64_t, 32> words{};
  const std::span<std::byte> slot = std::as_writable_bytes(std::span(words));
  wire::SlotMessageBuilder builder(slot);
  auto join = builder.initRoot<schema::Join>();
  join.setProtocolVersion(wire::kProtocolVersion);
  join.setSessionId(greeting.session);
  join.setSessionKey(wire::as_data(greeting.key));
  join.setIndex(greeting.index);
  constexpr wire::FrameLimits kAnswer{16u << 10, 0};
  return exchange(socket, wire::kJoin, slot.first(builder.used_bytes()), kAnswer, deadline,
                  deadline)
      .status();
}

}  // namespace fargpu::bootstrap
