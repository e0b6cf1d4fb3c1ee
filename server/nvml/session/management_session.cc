#include "server/nvml/session/management_session.h"

#include <fmt/core.h>
#include <kj/exception.h>

#include "common/wire/control.h"
#include "common/wire/data.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/nvml_opcodes.h"
#include "generated/server/nvml/serve.h"
#include "server/nvml/arguments.h"

namespace fargpu::server {

Status ManagementSession::run() {
  while (!bye_) FARGPU_RETURN_IF_ERROR(transport_.receive(*this, transport::kNoDeadline).status());
  return Status();
}

Result<std::span<std::byte>> ManagementSession::bulk_buffer(const wire::FrameHeader& header,
                                                            std::span<const std::byte>) {
  return Status(StatusCode::kProtocol, fmt::format("{} bytes of bulk in a management session",
                                                   static_cast<uint64_t>(header.bulk_bytes)));
}

Status ManagementSession::on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                                   std::span<std::byte>) {
  statistics_.calls.fetch_add(1, std::memory_order_relaxed);
  if ((header.flags & ~wire::kWantReply) != 0)
    return {StatusCode::kProtocol, fmt::format("the client sent flags {:#x}", header.flags)};
  switch (header.opcode) {
    case wire::kBye:
      bye_ = true;
      return Status();
    case wire::kPing:
      FARGPU_RETURN_IF_ERROR(responder_.reply(header, NVML_SUCCESS));
      break;
    default:
      try {
        FARGPU_RETURN_IF_ERROR(on_call(header, body));
      } catch (const kj::Exception& error) {
        return {StatusCode::kProtocol,
                fmt::format("{}: {}", schema::nvml_opcode_name(header.opcode),
                            error.getDescription().cStr())};
      } catch (const std::exception& error) {
        return {StatusCode::kSystem,
                fmt::format("{}: {}", schema::nvml_opcode_name(header.opcode), error.what())};
      }
  }
  return responder_.flush();
}

Status ManagementSession::on_call(const wire::FrameHeader& header,
                                  std::span<const std::byte> body) {
  const NvmlServe serve = find_nvml_serve(header.opcode);
  // The client is newer and does not look at what we know, or it has mistaken the session.
  if (serve == nullptr) return responder_.reply(header, NVML_ERROR_FUNCTION_NOT_FOUND);
  wire::SegmentReader reader(body);
  NvmlArguments in(wire::as_bytes(reader.getRoot<schema::NvmlCall>().getArguments()));
  NvmlOutputs out;
  const nvmlReturn_t result = serve(desk_, in, out);
  if (in.malformed()) {
    return {StatusCode::kProtocol,
            fmt::format("{}: malformed arguments", schema::nvml_opcode_name(header.opcode))};
  }
  const auto outputs = out.bytes();
  if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
    return responder_.reply(header, result);
  // The outcome stands before the outputs: of a frame that says failure nothing else is sent.
  rpc::Responder::Frame frame(responder_, header, outputs.size() + 64);
  auto answer = frame.init<schema::NvmlCall>();
  answer.setArguments(wire::as_data(outputs.data(), outputs.size()));
  answer.setResult(result);
  return frame.send(0);
}

}  // namespace fargpu::server
