// Core: the base of every part of a session's worker. References, to be copied at will: the session
// (server/session/session_parts.h) owns the objects.
#pragma once

#include "common/rpc/responder.h"
#include "generated/server/driver_table.h"
#include "server/core/contexts.h"
#include "server/core/output.h"
#include "server/core/posted_tasks.h"
#include "server/object/frame_stream.h"
#include "server/object/handle_table.h"
#include "server/object/pending.h"

namespace fargpu::server {

class StreamEvents;  // server/stream/stream_events.h

struct Core {
  const DriverTable& driver;
  rpc::Responder& responder;
  Output& output;
  Contexts& contexts;
  HandleTable& handles;
  PendingList& pending;
  PostedTasks& posted;
  StreamEvents& events;

  // A stream of the frame whose context is current. INVALID_HANDLE: there is none with this id.
  CUresult find_stream(uint64_t id, FrameStream* stream) const {
    if (id <= kPerThreadStreamId) {
      if (id == kPerThreadStreamId) contexts.use_per_thread_stream();
      *stream = {id, contexts.current(), reinterpret_cast<CUstream>(id)};
      return CUDA_SUCCESS;
    }
    const HandleTable::Object* object =
        rpc::handle_kind(id) == rpc::HandleKind::kStream ? handles.find(id) : nullptr;
    if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *stream = {id, object->context, static_cast<CUstream>(object->handle)};
    return CUDA_SUCCESS;
  }
  // The same for a frame of `context`. A copy, or a wait for a stream, may name a stream of another
  // context than the frame's; the stream's own is current afterwards.
  CUresult enter_stream(uint16_t context, uint64_t id, FrameStream* stream) const {
    if (const CUresult result = contexts.enter(context); result != CUDA_SUCCESS) return result;
    if (const CUresult result = find_stream(id, stream); result != CUDA_SUCCESS) return result;
    return contexts.enter(stream->context);
  }
};

}  // namespace fargpu::server
