#include "common/bootstrap/upgrade_messages.h"

#include <fmt/core.h>
#include <kj/exception.h>

#include <algorithm>

#include "common/base/printable.h"
#include "common/transport/frame_io.h"
#include "common/wire/control.h"
#include "common/wire/data.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"

namespace fargpu::bootstrap {
namespace {

constexpr wire::FrameLimits kLimits{16u << 10, 0};
constexpr size_t kMaxText = 1024;

schema::Upgrade::Step to_wire(UpgradeStep step) {
  switch (step) {
    case UpgradeStep::kPrepare:
      return schema::Upgrade::Step::PREPARE;
    case UpgradeStep::kDone:
      return schema::Upgrade::Step::DONE;
    case UpgradeStep::kFailed:
      return schema::Upgrade::Step::FAILED;
    case UpgradeStep::kStay:
      break;
  }
  return schema::Upgrade::Step::STAY;
}

std::optional<UpgradeStep> from_wire(schema::Upgrade::Step step) {
  switch (step) {
    case schema::Upgrade::Step::PREPARE:
      return UpgradeStep::kPrepare;
    case schema::Upgrade::Step::DONE:
      return UpgradeStep::kDone;
    case schema::Upgrade::Step::FAILED:
      return UpgradeStep::kFailed;
    case schema::Upgrade::Step::STAY:
      return UpgradeStep::kStay;
  }
  return std::nullopt;
}

template <typename T, typename Fill>
Status write_message(int socket, wire::FrameHeader header, transport::Deadline deadline,
                     Fill fill) {
  std::vector<uint64_t> words(kLimits.max_body_bytes / sizeof(uint64_t));
  const std::span<std::byte> slot = std::as_writable_bytes(std::span(words));
  wire::SlotMessageBuilder builder(slot);
  fill(builder.initRoot<T>());
  header.opcode = wire::kUpgrade;
  return transport::write_one_frame(socket, header, slot.first(builder.used_bytes()), {}, deadline);
}

Status malformed(const std::string& what) { return {StatusCode::kProtocol, "upgrade: " + what}; }

}  // namespace

Result<UpgradeAnswer> ask_upgrade(int socket, const UpgradeRequest& request,
                                  transport::Deadline deadline) {
  wire::FrameHeader header;
  header.flags = wire::kWantReply;
  header.sequence = request.sequence;
  FARGPU_RETURN_IF_ERROR(
      write_message<schema::Upgrade>(socket, header, deadline, [&](schema::Upgrade::Builder to) {
        to.setStep(to_wire(request.step));
        if (request.upgrade) to.setTransport(to_string(*request.upgrade));
        to.setReason(printable(request.reason, kMaxText));
        to.setConnections(request.connections);
        to.setBulk(request.bulk);
      }));
  FARGPU_ASSIGN_OR_RETURN(const transport::OwnedFrame frame,
                          transport::read_one_frame(socket, kLimits, deadline));
  if (frame.header.opcode != wire::kUpgrade || (frame.header.flags & wire::kReply) == 0 ||
      frame.header.sequence != request.sequence) {
    return malformed("the server sent something else than the answer");
  }
  try {
    wire::SegmentReader reader(frame.body());
    const auto from = reader.getRoot<schema::UpgradeReply>();
    UpgradeAnswer answer;
    answer.ok = from.getOk();
    answer.reason = printable(from.getReason().cStr(), kMaxText);
    answer.unix_name = from.getUnixName();
    answer.port = from.getPort();
    const auto cookie = from.getCookie();
    const auto* bytes = reinterpret_cast<const std::byte*>(cookie.begin());
    answer.cookie.assign(bytes, bytes + cookie.size());
    return answer;
  } catch (const kj::Exception& error) {
    return malformed(error.getDescription().cStr());
  }
}

Result<UpgradeRequest> read_upgrade(int socket, transport::Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(const transport::OwnedFrame frame,
                          transport::read_one_frame(socket, kLimits, deadline));
  if (frame.header.opcode != wire::kUpgrade || frame.header.flags != wire::kWantReply) {
    return malformed(fmt::format("the client sent opcode {} with flags {:#x} in the middle of it",
                                 frame.header.opcode, frame.header.flags));
  }
  try {
    wire::SegmentReader reader(frame.body());
    const auto from = reader.getRoot<schema::Upgrade>();
    const auto step = from_wire(from.getStep());
    if (!step) return malformed("an unknown step");
    UpgradeRequest request{*step,
                           parse_upgrade(from.getTransport().cStr()),
                           printable(from.getReason().cStr(), kMaxText),
                           frame.header.sequence,
                           std::max<uint16_t>(1, from.getConnections()),
                           from.getBulk()};
    if (request.bulk >= request.connections) return malformed("no connection is left for frames");
    if (*step != UpgradeStep::kStay && !request.upgrade) return malformed("an unknown transport");
    return request;
  } catch (const kj::Exception& error) {
    return malformed(error.getDescription().cStr());
  }
}

Status answer_upgrade(int socket, uint32_t sequence, const UpgradeAnswer& answer,
                      transport::Deadline deadline) {
  wire::FrameHeader header;
  header.flags = wire::kReply;
  header.sequence = sequence;
  return write_message<schema::UpgradeReply>(socket, header, deadline,
                                             [&](schema::UpgradeReply::Builder to) {
                                               to.setOk(answer.ok);
                                               to.setReason(printable(answer.reason, kMaxText));
                                               to.setUnixName(answer.unix_name);
                                               to.setPort(answer.port);
                                               to.setCookie(wire::as_data(answer.cookie));
                                             });
}

}  // namespace fargpu::bootstrap
