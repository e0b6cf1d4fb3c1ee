// StreamEvents: the worker's own events in streams of the application.
//
// Every event that the worker records into such a stream for itself, and every wait of a stream for
// one, passes here: marks of Completion, fences of copies, the ends of ordered copies. In a
// captured stream they would become nodes of its graph, or fail the capture, because the copy of a
// fence is not part of it. So record() and wait() alone decide about captured streams. Today no
// stream can be in capture.
//
// Unused events are kept for the next record, by context. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "server/object/object_end.h"

namespace fargpu::server {

struct DriverTable;

class StreamEvents {
 public:
  explicit StreamEvents(const DriverTable& driver) : driver_(driver) {}
  StreamEvents(const StreamEvents&) = delete;
  StreamEvents& operator=(const StreamEvents&) = delete;

  // An event behind the present work of `stream`. `context`: where the event belongs, which is
  // current. *event nullptr: gets one, which is returned by give_back(); otherwise it is recorded
  // again. OUT_OF_MEMORY when there is none; then, and after any error, *event is as it was.
  CUresult record(uint16_t context, CUstream stream, CUevent* event);
  // Later work of `stream` waits for the event.
  CUresult wait(CUstream stream, CUevent event);
  void give_back(uint16_t context, CUevent event) { unused_[context].push_back(event); }
  // Must be notified after all parts that have events.
  void context_ended(const ContextEnd& end);

 private:
  CUevent take(uint16_t context);

  const DriverTable& driver_;
  std::unordered_map<uint16_t, std::vector<CUevent>> unused_;  // by context
};

}  // namespace fargpu::server
