#include "client/entry/function_order.h"

#include <algorithm>

#include "client/entry/streams.h"
#include "client/process/session.h"

namespace fargpu::client {
namespace {

// Of a blocking stream that of all of its context, which wait for the legacy stream. Null: not
// known.
FunctionsAhead* functions_of_order(Session& session, CUstream stream) {
  ResolvedStream resolved;
  if (resolve_stream(session, stream, &resolved) != CUDA_SUCCESS || resolved.state == nullptr)
    return nullptr;
  if (order_of(resolved) == HostTurns::Of::kApart) return &(*resolved.state)->functions;
  const Context* const context = home_of(context_of(stream));
  return context == nullptr ? nullptr : &context->legacy_stream->functions;
}

uint64_t last_before(Session& session, CUstream stream) {
  const FunctionsAhead* const own = functions_of_order(session, stream);
  return own == nullptr ? FunctionsAhead::kAll : own->last();
}

}  // namespace

bool any_function(Session& session) { return session.observers.any(Observers::kHostFunctions); }

void put_behind(Session& session, CUstream stream, uint64_t last) {
  HostCalls& calls = session.host_calls;
  if (!any_function(session)) return;
  if (FunctionsAhead* const own = functions_of_order(session, stream)) {
    own->follow(std::min(last, calls.last()));
  } else {
    calls.everything_follows();
  }
}

void record_behind(Session& session, CUstream stream, Event& event) {
  if (!any_function(session)) return event.functions.set(0);
  // A driver refuses to record it in another context: then it stays as it was.
  const bool is_taken = event.context == home_of(context_of(stream));
  event.functions.set(is_taken ? last_before(session, stream) : FunctionsAhead::kAll);
}

void wait_behind(Session& session, CUstream stream, const Event& event) {
  // Other processes may have recorded it.
  const bool is_own = !event.interprocess.load(std::memory_order_relaxed);
  put_behind(session, stream, is_own ? event.functions.last() : FunctionsAhead::kAll);
}

void launch_behind(Session& session, CUstream stream, FunctionsAhead& launched) {
  if (!any_function(session)) return;
  put_behind(session, stream, launched.last());
  launched.follow(std::min(last_before(session, stream), session.host_calls.last()));
}

uint64_t functions_before(Session& session, CUstream stream) {
  return session.host_calls.last_up_to(last_before(session, stream));
}

}  // namespace fargpu::client
