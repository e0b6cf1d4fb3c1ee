#include "client/entry/known_done.h"

#include <utility>

#include "client/copy/copy_plan.h"
#include "client/entry/streams.h"
#include "client/process/session.h"

namespace fargpu::client {
namespace {

struct Known {
  const Session* session = nullptr;  // null: nothing is known
  uint64_t sent = 0;                 // frames, with that one
  uint64_t period = 0;
  CUstream stream = nullptr;
  uint16_t context = 0;
  bool answers_waits = false;
  bool by_copy = false;
};
thread_local constinit Known known;

// NULL means one of the two special handles.
CUstream named(CUstream stream) {
  if (stream != nullptr) return stream;
  return per_thread_default_stream() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

}  // namespace

KnownDone::KnownDone(Session& session)
    : session_(session),
      sent_(session.channel().frames_sent()),
      period_(session.host_calls.period()) {}

void KnownDone::note(uint16_t context, CUstream stream, By by) const {
  // More than this frame: those of other threads may have been behind it.
  const uint64_t sent = session_.channel().frames_sent();
  if (sent == sent_ + 1 && !session_.observers.any(kEqualAfterWaits))
    known = {&session_, sent, period_, named(stream), context, by != By::kWait, by == By::kCopy};
}

bool is_done(Session& session, uint16_t context, CUstream stream) {
  return known.session == &session && known.stream == named(stream) && known.context == context &&
         known.sent == session.channel().frames_sent() && !session.lost.load() &&
         !session.observers.any(kEqualAfterWaits);
}

bool is_known_done(Session& session, uint16_t context, CUstream stream) {
  if (!std::exchange(known.answers_waits, false) || !is_done(session, context, stream))
    return false;
  // As when a synchronous copy is about to return.
  return !known.by_copy ||
         (!session.observers.any(kToldOfReturns) && session.host_calls.period() == known.period);
}

}  // namespace fargpu::client
