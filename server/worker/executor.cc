#include "server/worker/executor.h"

#include <fmt/core.h>
#include <kj/exception.h>

#include <algorithm>

#include "common/wire/control.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/server/dispatch.h"

namespace fargpu::server {

using transport::Clock;
using transport::Deadline;

Status Executor::run() {
  last_progress_ = Clock::now();
  while (!bye_) {
    const auto received = transport_.receive(*this, next_look());
    if (!received.ok()) return received.status();
    if (*received > 0) last_progress_ = Clock::now();
    FARGPU_RETURN_IF_ERROR(between_frames());
  }
  worker_.before_error();
  return worker_.services().flush_output();
}

Deadline Executor::next_look() {
  const Deadline look = worker_.next_look();
  if (!worker_.has_pending()) return look;
  constexpr auto kShortest = std::chrono::microseconds(20),
                 kLongest = std::chrono::microseconds(1000);
  const auto now = Clock::now();
  const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(now - last_progress_);
  if (waited < spin_) return now;
  // Late by one or two hundredths of the wait: a copy of 10 ms must not end half a millisecond
  // late.
  return std::min<Deadline>(now + std::clamp(waited / 64, kShortest, kLongest), look);
}

Status Executor::between_frames() {
  activity_.begin();
  if (worker_.poll() > 0) last_progress_ = Clock::now();
  activity_.end();
  return worker_.responder().flush();
}

Status Executor::keep_budget() {
  frames_since_look_ = 0;
  const auto now = Clock::now();
  if (now - last_poll_ < kBudget) return Status();
  last_poll_ = now;
  return between_frames();
}

Result<std::span<std::byte>> Executor::bulk_buffer(const wire::FrameHeader& header,
                                                   std::span<const std::byte> body) {
  // at most the limit that we announced: the transport has checked
  const size_t bytes = header.bulk_bytes;
  if (header.opcode == schema::op_fgFetched) return worker_.receive_fetched(body, bytes);
  if (header.opcode != schema::op_fgCopyToDevice && header.opcode != schema::op_fgImagePut &&
      header.opcode != schema::op_fgImagePutPacked && header.opcode != schema::op_fgPagesPush) {
    return Status(StatusCode::kProtocol, fmt::format("{} bytes of bulk with {}", bytes,
                                                     schema::opcode_name(header.opcode)));
  }
  return worker_.receive_bulk(
      bytes, header.opcode == schema::op_fgCopyToDevice ? header.context : uint16_t{0});
}

Status Executor::on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                          std::span<std::byte> bulk) {
  statistics_.calls.fetch_add(1, std::memory_order_relaxed);
  if ((header.flags & ~wire::kWantReply) != 0) {
    return {StatusCode::kProtocol, fmt::format("the client sent flags {:#x}", header.flags)};
  }
  activity_.begin(header.opcode);
  worker_.begin_frame(header.opcode);
  const Status status = header.opcode < wire::kFirstApiOpcode ? on_control(header, body)
                                                              : on_call({header, body, bulk});
  activity_.end();
  worker_.drop_bulk();
  FARGPU_RETURN_IF_ERROR(status);
  if (worker_.has_work() && ++frames_since_look_ >= kFramesPerLook)
    FARGPU_RETURN_IF_ERROR(keep_budget());
  return (header.flags & wire::kWantReply) != 0 ? worker_.responder().flush() : Status();
}

Status Executor::on_control(const wire::FrameHeader& header, std::span<const std::byte> body) {
  switch (header.opcode) {
    case wire::kPing:
      return worker_.responder().reply(header, CUDA_SUCCESS);
    case wire::kInspect:
      return worker_.describe(header);
    case wire::kBye:
      bye_ = true;
      return Status();
    case wire::kHostCallDone:
      try {
        wire::SegmentReader reader(body);
        const uint64_t id = reader.getRoot<schema::HostCallDone>().getId();
        FARGPU_RETURN_IF_ERROR(worker_.services().host_gate().finished(id));
        // Awaited when the client makes every call wait (FARGPU_SYNC=1).
        return worker_.responder().reply(header, CUDA_SUCCESS);
      } catch (const kj::Exception& error) {
        return {StatusCode::kProtocol,
                fmt::format("hostCallDone: {}", error.getDescription().cStr())};
      }
    default:
      return {StatusCode::kProtocol,
              fmt::format("control opcode {} inside a session", header.opcode)};
  }
}

Status Executor::on_call(const Request& request) {
  const DispatchEntry* entry = find_dispatch(request.header.opcode);
  if (entry == nullptr || entry->handler == nullptr) {
    return {StatusCode::kProtocol, fmt::format("opcode {} has no message", request.header.opcode)};
  }
  try {
    return entry->handler(worker_, request);
  } catch (const kj::Exception& error) {
    return {StatusCode::kProtocol,
            fmt::format("{}: {}", entry->name, error.getDescription().cStr())};
  } catch (const std::exception& error) {
    return {StatusCode::kSystem, fmt::format("{}: {}", entry->name, error.what())};
  }
}

}  // namespace fargpu::server
