// Streams of the client: records, which stream a NULL or per-thread handle means, and how work
// finds a place in one.
//
// The per-thread default stream of CUDA is, in the worker, one hidden blocking stream per client
// thread and context: made at first use, destroyed when the thread ends. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "client/object/object.h"
#include "client/stream/functions_ahead.h"
#include "client/stream/stream_state.h"

namespace fargpu::client {

struct Stream final : Object {
  struct Context* green = nullptr;  // the green context that it was made in; null: none
  const std::shared_ptr<StreamState> state = std::make_shared<StreamState>();
};

struct CapturedPlace;  // client/capture/position.h

struct Event final : Object {
  std::atomic<bool> recorded{false};
  std::atomic<bool> is_timed{false};
  // Other processes may have it: what is done with it is done when the call returns, because they
  // may be told.
  std::atomic<bool> interprocess{false};
  FunctionsAhead functions;  // before what it was last recorded behind
  // In a captured stream; null: not there. Guarded by the mutex of captures.
  std::shared_ptr<const CapturedPlace> place;
};

// The id that stands for the legacy default stream on the wire.
inline constexpr uint64_t kLegacyStreamId = 1;

class Session;

// A stream of the session as the worker knows it, and its state: that of the record or context, or
// null for the legacy stream without a context. The results of stream_to_wire()
// (client/entry/call.h).
struct ResolvedStream {
  uint64_t id = 0;
  const std::shared_ptr<StreamState>* state = nullptr;
};
CUresult resolve_stream(Session& session, CUstream stream, ResolvedStream* resolved);
// Of a stream with a state.
HostTurns::Of order_of(const ResolvedStream& stream);
// For a host function that will be sent into `resolved`, which has a state. From now on work counts
// itself while it is being sent.
std::shared_ptr<void> make_turns(Session& session, const ResolvedStream& resolved);
// The queue of the legacy stream, if that and `stream` wait for each other; else null. The context
// outlives it.
const StreamQueue* legacy_queue_beside(CUstream stream, const ResolvedStream& resolved);
// Sends a mark, if one is needed, into the legacy stream of the context in which `stream` lives.
void follow_legacy(Session& session, CUstream stream);
// True inside an entry of the per-thread-default-stream variants (_ptsz, _ptds).
bool per_thread_default_stream();
inline bool is_legacy(CUstream stream) {
  return stream == CU_STREAM_LEGACY || (stream == nullptr && !per_thread_default_stream());
}

// True for NULL and the two special handles.
inline bool is_default_stream(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

// The context in which `stream` lives: the current one for default streams; nullptr for an invalid
// handle. It is no green one.
struct Context* context_of(CUstream stream);
// The green context that the stream belongs to; nullptr: none.
struct Context* green_of(CUstream stream);

// The end of what is in a stream now, to be waited for later: what is sent in between travels
// meanwhile. Needs a current context.
class StreamMark {
 public:
  StreamMark(Session& session, CUstream stream);
  CUresult wait();
  const std::shared_ptr<StreamQueue>& queue() const { return mark_; }

 private:
  Session& session_;
  std::shared_ptr<StreamQueue> mark_;
};

}  // namespace fargpu::client
