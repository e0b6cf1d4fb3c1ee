// Queries of streams and events while copies are under way whose calls have returned: for the
// client these copies, and all work before them in their streams, are done.
#pragma once

#include "server/manual/manual.h"
#include "server/stream/copy_fences.h"

namespace fargpu::server {

// Sends the result of ask() by send(header, result). "Not ready" is sent only when these copies
// have ended, so that the client sees no contradiction; until then the query is polled. Both are
// called more than once and later, so they hold ids, not handles.
template <typename Ask, typename Send>
Status answer_query(Worker& worker, const Request& request, Ask ask, Send send) {
  const CUresult result = ask();
  CopyFences& fences = worker.parts().copy_fences;
  if (result != CUDA_ERROR_NOT_READY || !fences.any_returned()) return send(request.header, result);
  const uint64_t newest = fences.newest();
  worker.defer([&worker, &fences, newest, header = request.header, ask, send] {
    const bool stands = fences.stands(newest);
    CUresult later = worker.enter_context(header.context);
    if (later == CUDA_SUCCESS) later = ask();
    if (later == CUDA_ERROR_NOT_READY && stands) return false;
    (void)send(header, later);
    return true;
  });
  return Status();
}

}  // namespace fargpu::server
