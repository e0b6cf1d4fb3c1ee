#include "tests/transport/channel_testing.h"

#include <test_messages.capnp.h>

#include <utility>

#include "common/wire/control.h"

namespace fargpu::test {
namespace {

using transport::StreamOptions;

uint64_t number_in(std::span<const std::byte> body) {
  wire::SegmentReader reader(body);
  return reader.getRoot<Number>().getValue();
}

Status reply_number(rpc::Responder& responder, const ReceivedFrame& request, uint64_t value,
                    std::span<const std::span<const std::byte>> bulk = {}) {
  rpc::Responder::Frame frame(responder, request.header, 64);
  frame.init<Number>().setValue(value);
  return frame.send(0, bulk);
}

}  // namespace

ScriptedServer::Script usual_script(std::shared_ptr<std::atomic<int64_t>> sum) {
  return [sum = std::move(sum)](rpc::Responder& responder, const ReceivedFrame& request) -> Status {
    const std::span<const std::byte> bulk(request.bulk);
    switch (request.header.opcode) {
      case kEcho:
        return reply_number(
            responder, request, number_in(request.body),
            bulk.empty() ? std::span<const std::span<const std::byte>>() : std::span(&bulk, 1));
      case kCount:
        *sum += static_cast<int64_t>(number_in(request.body));
        return responder.reply(request.header, 0);
      case kFail:
        return responder.reply(request.header, static_cast<int32_t>(number_in(request.body)));
      case kForget:
        return Status();
      case kNotify: {
        rpc::Responder::Frame notice(responder, wire::kOutput, 0);
        FARGPU_RETURN_IF_ERROR(notice.send(0, std::span(&bulk, 1)));
        return responder.reply(request.header, 0);
      }
      case kSum:
        return reply_number(responder, request, static_cast<uint64_t>(sum->load()));
    }
    return Status(StatusCode::kProtocol, "unknown opcode");
  };
}

ChannelFixture::ChannelFixture(const TransportKind& kind, rpc::ChannelOptions options,
                               const StreamOptions& stream) {
  TransportPair pair = kind.make(stream);
  server = std::make_unique<ScriptedServer>(std::move(pair.server), usual_script(sum));
  channel = std::make_unique<rpc::Channel>(std::move(pair.client), sink, options);
}

ChannelFixture::ChannelFixture(TransportPair pair, rpc::ChannelOptions options,
                               ScriptedServer::Script script) {
  server = std::make_unique<ScriptedServer>(std::move(pair.server), std::move(script));
  channel = std::make_unique<rpc::Channel>(std::move(pair.client), sink, options);
}

Status call_with(rpc::Channel& channel, uint16_t opcode, uint64_t value, rpc::Reply& reply,
                 std::span<const rpc::Bytes> bulk, std::span<std::byte> bulk_out) {
  rpc::Channel::Call call(channel, opcode, 7, 64);
  call.init<Number>().setValue(value);
  return call.call(reply, bulk, bulk_out);
}

Status send_with(rpc::Channel& channel, uint16_t opcode, uint64_t value, int32_t* result,
                 std::span<const rpc::Bytes> bulk) {
  rpc::Channel::Call call(channel, opcode, 7, 64);
  call.init<Number>().setValue(value);
  return call.send(bulk, result);
}

uint64_t value_of(rpc::Reply& reply) { return reply.root<Number>().getValue(); }

}  // namespace fargpu::test
