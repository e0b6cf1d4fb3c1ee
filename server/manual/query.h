// Queries of streams and events while the client knows more than the driver: for it copies whose
// calls have returned, and all work before them in their streams, are done, and so is a stream that
// has written the word of its wait (told_streams.h).
#pragma once

#include "server/manual/manual.h"
#include "server/stream/copy_fences.h"
#include "server/stream/told_streams.h"

namespace fargpu::server {

// Sends the result of ask() by send(header, result). "Not ready" is sent only when the driver knows
// of the end of these, so that the client sees no contradiction; until then the query is polled.
// Both are called more than once and later, so they hold ids, not handles.
template <typename Ask, typename Send>
Status answer_query(Worker& worker, const Request& request, Ask ask, Send send) {
  const CUresult result = ask();
  CopyFences& fences = worker.parts().copy_fences;
  ToldStreams& told = worker.parts().told_streams;
  if (result != CUDA_ERROR_NOT_READY || !(fences.any_returned() || told.any()))
    return send(request.header, result);
  const uint64_t newest = fences.newest();
  worker.defer([&worker, &fences, &told, newest, header = request.header, ask, send] {
    const bool stands = fences.stands(newest) || told.any_unknown();
    CUresult later = worker.enter_context(header.context);
    if (later == CUDA_SUCCESS) later = ask();
    if (later == CUDA_ERROR_NOT_READY && stands) return false;
    (void)send(header, later);
    return true;
  });
  return Status();
}

}  // namespace fargpu::server
