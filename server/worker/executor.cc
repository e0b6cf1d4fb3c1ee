#include "server/worker/executor.h"

#include <fmt/core.h>
#include <kj/exception.h>

#include <algorithm>

#include "common/base/log.h"
#include "common/bootstrap/agreement.h"
#include "common/wire/control.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/server/dispatch.h"

namespace fargpu::server {

using transport::Clock;
using transport::Deadline;

namespace {

constexpr auto kLongestAtGate = std::chrono::milliseconds(50);

}  // namespace

Status Executor::run() {
  last_progress_ = Clock::now();
  Status status = serve();
  while (!status.ok() && survives(status)) status = serve();
  FARGPU_RETURN_IF_ERROR(status);
  worker_.before_error();
  return worker_.parts().output.flush();
}

Status Executor::serve() {
  while (!bye_) {
    if (gate_.in_the_way()) [[unlikely]] {
      FARGPU_RETURN_IF_ERROR(after_gate());
      if (bye_) break;
    }
    const Deadline look =
        bulk_ == nullptr ? next_look() : std::min(next_look(), bulk_->next_look());
    const auto received = transport_.receive(*this, look);
    if (!received.ok()) return received.status();
    if (*received > 0)
      last_progress_ = Clock::now();
    else if (activity_.peer_gone() && !gate_.is_open()) [[unlikely]]
      return {StatusCode::kLost, "the client went while its session was stopped"};
    FARGPU_RETURN_IF_ERROR(between_frames());
    if (bulk_ != nullptr)
      FARGPU_RETURN_IF_ERROR(bulk_->after_look(transport_.statistics().bytes_received));
    if (commands_.waiting()) [[unlikely]]
      commands_.serve();
  }
  return Status();
}

Status Executor::after_gate() {
  while (auto frame = gate_.next()) {
    worker_.parts().bulk = std::move(frame->block);
    FARGPU_RETURN_IF_ERROR(execute(frame->header, frame->body_bytes(), frame->bulk));
    last_progress_ = Clock::now();
    if (bye_) break;
  }
  worker_.parts().ordered_copies.calls_wait(gate_.any_waits());
  return Status();
}

Status Executor::at_gate(const wire::FrameHeader& header, std::span<const std::byte> body,
                         std::span<std::byte> bulk) {
  StagingBlock block = worker_.parts().take_bulk();
  FARGPU_RETURN_IF_ERROR(after_gate());
  while (gate_.is_full() && gate_.stops(header.opcode)) FARGPU_RETURN_IF_ERROR(wait_at_gate());
  if (bye_) return Status();
  if (gate_.stops(header.opcode)) {
    gate_.keep(header, body, bulk, std::move(block));
    if (header.opcode == wire::kPing) worker_.responder().try_notice(wire::kAlive, 0);
    return Status();
  }
  worker_.parts().bulk = std::move(block);
  return execute(header, body, bulk);
}

// Posted tasks wake the transport's wait, which this loop does not use, so it polls instead.
Status Executor::wait_at_gate() {
  constexpr auto kOften = std::chrono::milliseconds(1);
  FARGPU_RETURN_IF_ERROR(between_frames());
  commands_.serve();
  if (activity_.peer_gone())
    return {StatusCode::kLost, "the client went while its session was stopped"};
  commands_.pause(std::min<Deadline>(next_look(), Clock::now() + kOften));
  return after_gate();
}

Deadline Executor::next_look() {
  Deadline look = worker_.next_look();
  // No event wakes the executor when the daemon opens the gate, or when the client has gone.
  if (gate_.in_the_way()) [[unlikely]]
    look = std::min(look, Clock::now() + kLongestAtGate);
  if (!worker_.has_pending() && !commands_.waiting() && !gate_.any_waits()) return look;
  constexpr auto kShortest = std::chrono::microseconds(20),
                 kLongest = std::chrono::microseconds(1000);
  const auto now = Clock::now();
  const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(now - last_progress_);
  if (waited < spin_) return now;
  // The interval is a 64th of the time waited so far: the end of a copy that takes 10 ms is seen at
  // most 0.2 ms late.
  return std::min<Deadline>(now + std::clamp(waited / 64, kShortest, kLongest), look);
}

Status Executor::between_frames() {
  activity_.begin();
  const uint64_t begin = timeline_.on() ? Timeline::now() : 0;
  worker_.parts().ordered_copies.may_open_gates(gate_.lets_streams_go());
  if (worker_.poll() > 0) {
    last_progress_ = Clock::now();
    if (begin != 0) timeline_.posted(begin);
  }
  activity_.end();
  if (bulk_ != nullptr) FARGPU_RETURN_IF_ERROR(bulk_->broken());
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
  const DispatchEntry* const call = find_dispatch(header.opcode);
  switch (call == nullptr ? BulkInto::kNowhere : call->bulk) {
    case BulkInto::kStaging:
      return worker_.receive_bulk(bytes, 0);
    case BulkInto::kPinned:
      return worker_.receive_bulk(bytes, header.context);
    case BulkInto::kNamed:
      return worker_.receive_fetched(body, bytes);
    case BulkInto::kNowhere:
      break;
  }
  // An unknown call is refused after its bytes were read.
  if (!bootstrap::known_opcodes().contains(header.opcode)) return worker_.receive_bulk(bytes, 0);
  return Status(StatusCode::kProtocol,
                fmt::format("{} bytes of bulk with {}", bytes, schema::opcode_name(header.opcode)));
}

Status Executor::on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                          std::span<std::byte> bulk) {
  if ((header.flags & ~wire::kWantReply) != 0) {
    return {StatusCode::kProtocol, fmt::format("the client sent flags {:#x}", header.flags)};
  }
  if (gate_.in_the_way()) [[unlikely]]
    return at_gate(header, body, bulk);
  return execute(header, body, bulk);
}

Status Executor::execute(const wire::FrameHeader& header, std::span<const std::byte> body,
                         std::span<std::byte> bulk) {
  statistics_.calls.fetch_add(1, std::memory_order_relaxed);
  const bool noted = timeline_.on();
  if (noted) [[unlikely]]
    timeline_.begin_frame(header);
  activity_.begin(header.opcode);
  worker_.begin_frame(header.opcode);
  if (header.opcode != schema::op_fgPagesPush && header.opcode != schema::op_fgPagesPushChanges)
    worker_.parts().settle_pushes();
  const Status status = header.opcode < wire::kFirstApiOpcode ? on_control(header, body)
                                                              : on_call({header, body, bulk});
  activity_.end();
  worker_.drop_bulk();
  if (noted) [[unlikely]]
    timeline_.end_frame();
  FARGPU_RETURN_IF_ERROR(status);
  if (!settled_ && worker_.parts().contexts.current() != 0) [[unlikely]] {
    settled_ = true;
    commands_.say_settled();
  }
  if (worker_.waits() > kMostWaits) [[unlikely]]
    return {StatusCode::kProtocol, fmt::format("more than {} calls wait", kMostWaits)};
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
        FARGPU_RETURN_IF_ERROR(worker_.parts().host_gate.finished(id));
        // Awaited when the client makes every call wait (FARGPU_SYNC=1).
        return worker_.responder().reply(header, CUDA_SUCCESS);
      } catch (const kj::Exception& error) {
        return {StatusCode::kProtocol,
                fmt::format("hostCallDone: {}", error.getDescription().cStr())};
      }
    default:
      if (!bootstrap::known_opcodes().contains(header.opcode)) return refuse_unknown(header);
      return {StatusCode::kProtocol,
              fmt::format("control opcode {} inside a session", header.opcode)};
  }
}

Status Executor::on_call(const Request& request) {
  const DispatchEntry* entry = find_dispatch(request.header.opcode);
  if (entry == nullptr || entry->handler == nullptr) return refuse_unknown(request.header);
  // It would be kept until its stream gets there.
  if (entry->bulk == BulkInto::kPinned && worker_.parts().bulk.beyond_budget()) [[unlikely]]
    return worker_.responder().reply(request.header, CUDA_ERROR_OUT_OF_MEMORY);
  try {
    return entry->handler(worker_, request);
  } catch (const kj::Exception& error) {
    return {StatusCode::kProtocol,
            fmt::format("{}: {}", entry->name, error.getDescription().cStr())};
  } catch (const std::exception& error) {
    return {StatusCode::kSystem, fmt::format("{}: {}", entry->name, error.what())};
  }
}

Status Executor::refuse_unknown(const wire::FrameHeader& header) {
  constexpr unsigned kMostNamed = 32;
  if (!refused_.contains(header.opcode) && refused_count_ < kMostNamed) {
    refused_.insert(header.opcode);
    ++refused_count_;
    log::warn(
        "event=unknown-call opcode={} name={} why=\"the client did not look at what this "
        "server (fargpu {}) knows\"",
        header.opcode, schema::opcode_name(header.opcode), FARGPU_VERSION);
  }
  return worker_.responder().reply(header, CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace fargpu::server
