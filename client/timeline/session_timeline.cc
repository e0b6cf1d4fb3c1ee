#include "client/timeline/session_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "client/call/trace.h"
#include "client/link/link.h"
#include "client/timeline/lanes.h"
#include "client/timeline/records.h"
#include "common/base/log.h"
#include "common/rpc/thread_calls.h"
#include "generated/client/wire/internal.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client::timeline {
namespace {

constexpr size_t kRecordsAtOnce = (1u << 20) / sizeof(wire::TimelineRecord);
constexpr size_t kSlicesAtOnce = 4096;  // half a gigabyte of text may have come together

}  // namespace

SessionTimeline::SessionTimeline(Link& link, unsigned number, std::string server, uint64_t records)
    : link_(link),
      process_(process_of(number)),
      server_(std::move(server)),
      known_(link.knows(schema::op_fgTimelineStart) && link.knows(schema::op_fgTimelineClock) &&
             link.knows(schema::op_fgTimelineTake)),
      records_(records),
      frames_(records) {}

void SessionTimeline::start() {
  const std::lock_guard lock(mutex_);
  const rpc::NotCounted ours;
  trace::write_events(name_lanes(process_, server_));
  if (!known_) return tell("this server's release makes no timeline");
  CUresult result = relate_clocks(&last_);
  if (result == CUDA_SUCCESS) result = wire::fgTimelineStart(link_, 0, records_);
  if (result != CUDA_SUCCESS)
    return tell(fmt::format("the worker makes no timeline: error {}", static_cast<int>(result)));
  on_ = true;
}

void SessionTimeline::tell(const std::string& why, const std::string& arguments) {
  trace::write_events(note(process_, why, arguments));
  log::warn("timeline of {}: {}", server_, why);
}

CUresult SessionTimeline::relate_clocks(Exchange* exchange) {
  std::array<Exchange, 8> exchanges;
  for (Exchange& each : exchanges) {
    unsigned long long worker = 0;
    each.sent = Frames::now();
    if (const CUresult result = wire::fgTimelineClock(link_, 0, &worker); result != CUDA_SUCCESS)
      return result;
    each.received = Frames::now();
    each.worker = worker;
  }
  *exchange = best_of(exchanges);
  trace::write_events(note(process_, "clocks",
                           fmt::format(R"("offset_ns":{},"round_trip_ns":{})", exchange->offset(),
                                       exchange->round_trip())));
  return CUDA_SUCCESS;
}

// Ends even when the worker always has more.
CUresult SessionTimeline::take(std::vector<wire::TimelineRecord>& records) {
  std::vector<std::byte> piece(kRecordsAtOnce * sizeof(wire::TimelineRecord));
  size_t bytes = piece.size();
  while (bytes == piece.size() && records.size() <= records_) {
    unsigned long long dropped = 0;
    const CUresult result =
        wire::fgTimelineTake(link_, 0, piece.size(), &bytes, &dropped, piece.data());
    if (result != CUDA_SUCCESS) return result;
    auto more = read_records(std::span(piece).first(bytes));
    if (!more.ok()) {
      log::warn("timeline of {}: {}", server_, more.status().message());
      return CUDA_ERROR_UNKNOWN;
    }
    records.insert(records.end(), more->begin(), more->end());
    dropped_ = dropped;
  }
  return CUDA_SUCCESS;
}

void SessionTimeline::fetch() try {
  Exchange now;
  std::vector<wire::TimelineRecord> records;
  CUresult result = relate_clocks(&now);
  if (result == CUDA_SUCCESS) result = take(records);
  on_ = result == CUDA_SUCCESS;
  if (!on_) return tell(fmt::format("its end is missing: error {}", static_cast<int>(result)));
  const auto slices = frames_.match(records, ClockRelation(last_, now));
  last_ = now;
  for (std::span<const Slice> rest = slices; !rest.empty();) {
    const size_t count = std::min(rest.size(), kSlicesAtOnce);
    trace::write_events(describe(process_, rest.first(count)));
    rest = rest.subspan(count);
  }
} catch (const std::bad_alloc&) {
  on_ = false;  // its end is missing; the program's call goes on
}

void SessionTimeline::fetch_if_half_full() {
  if (frames_.noted_since_match() < (records_ + 1) / 2) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !on_) return;
  const rpc::NotCounted ours;
  fetch();
}

void SessionTimeline::finish(transport::Deadline deadline) {
  constexpr auto kLookAgain = std::chrono::milliseconds(1);
  std::unique_lock lock(mutex_, std::try_to_lock);
  while (!lock.owns_lock() && transport::Clock::now() < deadline) {
    std::this_thread::sleep_for(kLookAgain);  // its owner may wait for a worker that is stuck
    (void)lock.try_lock();
  }
  if (lock.owns_lock() && !on_) return;
  const rpc::NotCounted ours;
  if (!lock.owns_lock() || !link_.channel().ping(deadline).ok())
    return tell("its end is missing: no answer");
  fetch();
  if (const uint64_t dropped = dropped_ + frames_.dropped(); dropped > 0) {
    tell(fmt::format("{} records had no room", dropped), fmt::format("\"dropped\":{}", dropped));
  }
  on_ = false;
}

}  // namespace fargpu::client::timeline
