#include "client/nvml/connection.h"

#include <fmt/core.h>
#include <kj/exception.h>

#include <cerrno>

#include "common/base/log.h"
#include "common/bootstrap/connect.h"
#include "common/bootstrap/open_session.h"
#include "common/transport/link/emulated_link.h"
#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"

namespace fargpu::nvml {

using transport::Clock;

namespace {

constexpr unsigned kMostDevices = 256;  // of one server; more than any host has
// Beyond the time to connect. A server that is silent for as long is lost anyway (channel.h).
constexpr auto kAnswerTime = std::chrono::seconds(15);

}  // namespace

Result<std::unique_ptr<Connection>> Connection::open(const std::string& server,
                                                     const std::optional<bootstrap::JobTicket>& job,
                                                     const client::Settings& settings) {
  FARGPU_ASSIGN_OR_RETURN(const auto address, bootstrap::parse_server(server));
  const auto deadline = Clock::now() + settings.connect_timeout;
  // The worker starts NVML before it answers.
  constexpr auto kWorkerStart = std::chrono::seconds(30);
  const bootstrap::Patience patience{deadline, deadline + kWorkerStart, deadline + kWorkerStart};
  const bootstrap::Greeting greeting{.opcode = wire::kManage,
                                     .program = program_invocation_short_name,
                                     .token = settings.tokens.of(address),
                                     .why_no_token = settings.tokens.why_none(address),
                                     .gpus = settings.gpus,
                                     .memory_bytes = settings.memory_bytes,
                                     .devices = settings.devices,
                                     .job = job};
  // The connection stays what it is: calls are few, and none moves much.
  const bootstrap::LinkWish wish{{.upgrades = {}, .forced = false}, {}, settings.spin};
  FARGPU_ASSIGN_OR_RETURN(bootstrap::OpenedSession opened,
                          bootstrap::open_session(address, greeting, wish, patience));
  std::unique_ptr<Connection> connection(
      new Connection(server, settings.connect_timeout + kAnswerTime));
  connection->known_ = opened.known;
  try {
    wire::SegmentReader reader(opened.welcome.body());
    const auto welcome = reader.getRoot<schema::Welcome>();
    connection->daemon_ = welcome.getDaemonId();
    if (welcome.getManagement().getDevices().size() > kMostDevices)
      return Status(StatusCode::kProtocol, "the server says that it has too many GPUs");
    for (const auto device : welcome.getManagement().getDevices()) {
      connection->devices_.push_back({device.getUuid().cStr(), device.getSerial().cStr(),
                                      device.getDomain(), device.getBus(), device.getDevice()});
    }
  } catch (const kj::Exception&) {
    return Status(StatusCode::kProtocol, "the server's answer to the hello is malformed");
  }
  auto transport = std::move(opened.link.transport);
  if (settings.link) transport = transport::emulate_link(std::move(transport), *settings.link);
  connection->channel_ = std::make_unique<rpc::Channel>(
      std::move(transport), *connection, rpc::ChannelOptions{.limits = greeting.limits});
  return connection;
}

Connection::~Connection() {
  constexpr auto kPatience = std::chrono::milliseconds(500);
  if (channel_ != nullptr && !channel_->lost()) channel_->close(Clock::now() + kPatience);
}

void Connection::give_up(const char* call) {
  log::error("the server {} has not answered {} for {:.1f} s: its NVML session ends", server_, call,
             std::chrono::duration<double>(patience_).count());
  ended_ = true;
  channel_->transport().close();
}

void Connection::end(const char* call) {
  log::error("the server {} answered {} with a malformed message: its NVML session ends", server_,
             call);
  ended_ = true;
  channel_->transport().close();
}

Status Connection::on_notice(const wire::FrameHeader& header, rpc::Bytes, rpc::Bytes) {
  return {StatusCode::kProtocol, fmt::format("the server sent a notice, opcode {}", header.opcode)};
}

void Connection::on_lost(const Status& why) {
  log::warn("the NVML session with {} is lost: {}", server_, why.message());
}

}  // namespace fargpu::nvml
