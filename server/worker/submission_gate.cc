#include "server/worker/submission_gate.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/wire/control.h"
#include "generated/schema/opcodes.h"
#include "generated/server/dispatch.h"

namespace fargpu::server {
namespace {

// An answer for which a stream of the driver may wait, or what comes before one.
bool releases(uint16_t opcode) {
  return opcode == wire::kHostCallDone || opcode == schema::op_fgDelivered ||
         opcode == schema::op_fgFetched || opcode == schema::op_fgAmend;
}

// The client's side of memory that both ends have. A host function needs it before it runs, and
// what it wrote goes before the answer that it has returned.
bool is_about_pages(uint16_t opcode) {
  return opcode == schema::op_fgPagesPush || opcode == schema::op_fgPagesPushChanges ||
         opcode == schema::op_fgPagesFetch || opcode == schema::op_fgPagesFetchPart;
}

bool passes_closed(uint16_t opcode) { return releases(opcode) || is_about_pages(opcode); }

bool submits(uint16_t opcode) {
  const DispatchEntry* const entry = find_dispatch(opcode);
  return entry != nullptr && entry->submits;
}

// Only of the order among frames: nothing before it is in its way.
bool may_go(Gate state, uint16_t opcode) {
  return state == Gate::kOpen ||
         (!submits(opcode) && (state == Gate::kClosed || !releases(opcode)));
}

}  // namespace

constinit const std::atomic<uint32_t> SubmissionGate::kInTheWay{1};

Gate SubmissionGate::state() const {
  const uint32_t word = orders_.gate.load(std::memory_order_relaxed);
  const bool known = word <= static_cast<uint32_t>(Gate::kShut);
  return known ? static_cast<Gate>(word) : Gate::kShut;
}

bool SubmissionGate::stops(uint16_t opcode) const {
  if (opcode == wire::kInspect) return false;
  const Gate now = state();
  if (frames_.empty()) return !may_go(now, opcode);
  return now != Gate::kClosed || !passes_closed(opcode);
}

void SubmissionGate::keep(const wire::FrameHeader& header, std::span<const std::byte> body,
                          std::span<std::byte> bulk, StagingBlock block) {
  Frame& frame = frames_.emplace_back();
  frame.header = header;
  frame.body.resize((body.size() + 7) / 8);
  if (!body.empty()) std::memcpy(frame.body.data(), body.data(), body.size());
  frame.bulk = bulk;
  frame.block = std::move(block);
  bytes_ += body.size() + bulk.size();
  if (passes_closed(header.opcode)) ++passing_;
  word_ = &kInTheWay;
}

std::optional<SubmissionGate::Frame> SubmissionGate::take(
    const std::deque<Frame>::iterator& place) {
  Frame frame = std::move(*place);
  frames_.erase(place);
  bytes_ -= frame.body_bytes().size() + frame.bulk.size();
  if (passes_closed(frame.header.opcode)) --passing_;
  if (frames_.empty()) word_ = &orders_.gate;
  return frame;
}

std::optional<SubmissionGate::Frame> SubmissionGate::next() {
  if (frames_.empty()) return std::nullopt;
  const Gate now = state();
  if (may_go(now, frames_.front().header.opcode)) return take(frames_.begin());
  if (now != Gate::kClosed || passing_ == 0) return std::nullopt;
  return take(std::find_if(frames_.begin(), frames_.end(),
                           [](const Frame& frame) { return passes_closed(frame.header.opcode); }));
}

}  // namespace fargpu::server
