#include "client/entry/known_done.h"

#include <utility>

#include "client/copy/copy_plan.h"
#include "client/entry/streams.h"
#include "client/process/session.h"

namespace fargpu::client {
namespace {

struct Known {
  const Session* session = nullptr;  // null: nothing is known
  uint64_t sent = 0;                 // frames, with the copy's
  CUstream stream = nullptr;
  uint16_t context = 0;
};
thread_local constinit Known known;

// NULL means one of the two special handles.
CUstream named(CUstream stream) {
  if (stream != nullptr) return stream;
  return per_thread_default_stream() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

}  // namespace

KnownDone::KnownDone(Session& session)
    : session_(session), sent_(session.channel().frames_sent()) {}

void KnownDone::passed(uint16_t context, CUstream stream) const {
  // More than the copy's frame: those of other threads may have been behind it.
  const uint64_t sent = session_.channel().frames_sent();
  if (sent == sent_ + 1 && !session_.observers.any(kEqualAfterWaits))
    known = {&session_, sent, named(stream), context};
}

bool is_known_done(Session& session, uint16_t context, CUstream stream) {
  const Known last = std::exchange(known, {});
  return last.session == &session && last.stream == named(stream) && last.context == context &&
         last.sent == session.channel().frames_sent() && !session.lost.load() &&
         !session.observers.any(kEqualAfterWaits);
}

}  // namespace fargpu::client
