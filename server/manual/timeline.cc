// The client's timeline: starts the notes, tells the clock, gives them out.
#include <algorithm>
#include <vector>

#include "generated/server/internal_decode.h"
#include "server/manual/manual.h"

namespace fargpu::server {

Status manual_fgTimelineStart(Worker& worker, const Request& request) {
  return decode_fgTimelineStart(worker, request, [&](const auto& given) -> Status {
    SessionParts& parts = worker.parts();
    if (!parts.timeline.start(given.records))
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    parts.responder.tell(parts.timeline);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_fgTimelineClock(Worker& worker, const Request& request) {
  rpc::Responder::Frame frame(worker.responder(), request.header,
                              schema::fixed_bytes<schema::FgTimelineClockResults>());
  frame.init<schema::FgTimelineClockResults>().setNanoseconds(Timeline::now());
  return frame.send(CUDA_SUCCESS);
}

Status manual_fgTimelineTake(Worker& worker, const Request& request) {
  return decode_fgTimelineTake(worker, request, [&](const auto& given) -> Status {
    SessionParts& parts = worker.parts();
    const uint64_t there = parts.timeline.size() * sizeof(wire::TimelineRecord);
    std::vector<std::byte> records(
        std::min<uint64_t>({given.mostBytes, there, parts.max_bulk_bytes}));
    records.resize(parts.timeline.take(records) * sizeof(wire::TimelineRecord));
    rpc::Responder::Frame frame(worker.responder(), request.header,
                                schema::fixed_bytes<schema::FgTimelineTakeResults>());
    auto results = frame.init<schema::FgTimelineTakeResults>();
    results.setBytes(records.size());
    results.setDropped(parts.timeline.dropped());
    const std::span<const std::byte> bulk(records);
    return frame.send(CUDA_SUCCESS, {&bulk, records.empty() ? size_t{0} : size_t{1}});
  });
}

}  // namespace fargpu::server
