// Shared by the hand-written halves. Each handler replies by itself, at once or later; a malformed
// body becomes kProtocol in decoded().
#pragma once

#include <functional>
#include <utility>

#include "common/wire/data.h"
#include "common/wire/slot_message.h"
#include "generated/server/driver_table.h"
#include "generated/server/manual.h"
#include "server/object/request.h"
#include "server/object/server_support.h"
#include "server/session/session_parts.h"

namespace fargpu::server {

// Returns from the handler with `result` as the reply unless `expression` is CUDA_SUCCESS.
#define FARGPU_ANSWER_UNLESS_SUCCESS(expression)                                        \
  do {                                                                                  \
    if (const CUresult fargpu_result_ = (expression); fargpu_result_ != CUDA_SUCCESS) { \
      return answer(worker, request, fargpu_result_);                                   \
    }                                                                                   \
  } while (0)

// Replies with CUDA_ERROR_NOT_SUPPORTED when this server's driver lacks the function.
#define FARGPU_NEEDS_DRIVER(function) \
  if (worker.driver().function == nullptr) return answer(worker, request, CUDA_ERROR_NOT_SUPPORTED)

// A reply that is sent later: the data of the header, without the request. A transport that fails
// is noticed by the executor.
class LaterReply {
 public:
  LaterReply(Worker& worker, const Request& request)
      : worker_(&worker),
        header_(request.header),
        context_(worker.parts().contexts.ref(request.header.context)) {}
  // Whether the request's context has not ended meanwhile.
  bool context_lives() const { return worker_->parts().contexts.lives(context_); }
  // An object that was made meanwhile in the request's context. CONTEXT_IS_DESTROYED: the context
  // has ended, and the object with it; another context with the same id must not get the object.
  CUresult add(rpc::HandleKind kind, uint64_t id, void* handle) const {
    return context_lives() ? worker_->add(kind, id, handle, header_.context)
                           : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  void send(CUresult result) const {
    if (result != CUDA_SUCCESS) worker_->before_error();
    (void)worker_->responder().reply(header_, result);
  }
  // After a synchronisation: the output of device code is sent first.
  void send_synchronised(CUresult result) const {
    (void)worker_->parts().output.flush();
    send(result);
  }
  const wire::FrameHeader& header() const { return header_; }
  Worker& worker() const { return *worker_; }

 private:
  Worker* worker_;
  wire::FrameHeader header_;
  ContextRef context_;
};

using Finished = std::function<void(CUresult)>;

// A call of a helper thread that found no memory is made once more, when other sessions that may
// hold some have ended. `start(done)` begins it; `done(result)` is called once.
inline void with_memory(Worker& worker, const std::function<void(const Finished&)>& start,
                        const Finished& done) {
  start([&worker, start, done](CUresult result) {
    EndedSessions& ended = worker.parts().ended_sessions;
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !ended.any_others()) return done(result);
    ended.wait([start, done] { start(done); });
  });
}

using wire::as_bytes;

}  // namespace fargpu::server
