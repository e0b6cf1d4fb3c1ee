// The captures of the process: streams whose calls become nodes of a graph. All of it is here;
// nothing is sent, and the worker's streams are never captured.
//
// A capture ends by cuStreamEndCapture, or with the stream that began it: the next look-up ends the
// captures of such a stream. Events carry a place in a capture (CapturedPlace).
//
// Any thread. A mutex guards all of it; the GraphLock is taken before it. Streams are meant as the
// application names them, below a CallScope.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <span>

#include "client/call/capture.h"
#include "client/capture/position.h"
#include "client/graph/graph.h"

namespace fargpu::client {
struct Event;  // client/entry/streams.h
}

namespace fargpu::client::capture {

// The mode of the calling thread.
CUstreamCaptureMode& thread_mode();

// `graph`: nullptr: a new one. CUDA_ERROR_INVALID_VALUE: `first` is not all of the graph's.
CUresult begin(CUstream stream, CUstreamCaptureMode mode);
CUresult begin_to(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, const Position& first);
// The graph is the caller's after a success, else it has ended, also one of the application's.
CUresult end(CUstream stream, CUgraph* graph);

struct Info {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // While it is active. The position is valid until the stream's next call.
  uint64_t id = 0;
  CUgraph graph = nullptr;
  const Position* position = nullptr;
};
// Whether a stream's calls become nodes of the graph: it and its nodes cannot be destroyed.
bool captures_into(const Graph& graph);
// A stream has been destroyed: the graph that it captured into ends.
void end_abandoned_graphs();
// CUDA_ERROR_ILLEGAL_STATE: the stream is not captured; CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the
// legacy stream, for which captured ones wait, and whose captures end.
CUresult check_captured(CUstream stream);
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the legacy stream, for which captured ones wait.
CUresult get_info(CUstream stream, Info* info);
CUresult set_position(CUstream stream, const Position& position, bool keep_old);

// A node behind the captured work of the stream. `programmatic`: it may begin before the preceding
// kernel has ended.
CUresult add(CUstream stream, NodeParams params, bool programmatic, CUgraphNode* node);
CUresult add(CUstream stream, const CUgraphNodeParams& params);
// The call was wrong in a way that ends the capture.
void invalidate(CUstream stream);

// An event of a captured stream: recorded there, or by a node whose edges these are.
CUresult record(CUevent event, CUstream stream);
CUresult record_at(CUevent event, CUstream stream, const Position& position);
// It has been recorded where nothing is captured, behind whatever functions: it has no place in a
// capture any more. By its handle: does nothing if there is no such event.
void note_record(Event& event);
void note_record(CUevent event);
// A captured stream waits.
CUresult wait(CUstream stream, CUevent event);
// A stream that is not captured waits, and joins the capture if the event is of one. nullopt: an
// ordinary event.
std::optional<CUresult> join(CUstream stream, CUevent event);
// CUDA_ERROR_CAPTURED_EVENT, CUDA_ERROR_INVALID_VALUE: the event has a place in a capture, or in
// one that has ended. `ends`: whether that ends the capture.
CUresult check_event(CUevent event, bool ends);
inline bool any_event() { return CapturedPlace::count.load(std::memory_order_relaxed) != 0; }

// Ends the captures in which streams of the green context take part; false: there are none.
bool ends_in_green(const Context* green);

}  // namespace fargpu::client::capture
