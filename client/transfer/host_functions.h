// Functions of the application in streams: how they get there, and the thread that runs them
// (client/stream/host_calls.h). Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "client/entry/call_target.h"
#include "client/entry/streams.h"
#include "client/stream/host_calls.h"
#include "client/transfer/submission.h"

namespace fargpu::client {

// The session's functions, whose thread runs. Nothing else adds any.
HostCalls& functions_of(Session& session);
// Puts a function of the application, or of ours, into its stream.
CUresult put_into_stream(const CallTarget& target, HostFunction function);

// Functions that HostCalls knows, on their way into a stream. Null turns: it has no state.
struct FunctionsToSend {
  CUstream stream;  // as the application gave it
  std::shared_ptr<void> turns{};
  const StreamQueue* legacy = nullptr;  // as HostTurns has it
};
// Sends them when there are turns, by `message(stream)`: it is given the stream's id on the wire.
// They leave at once, with what was sent before: the application may be waiting for one of them.
template <typename Message>
CUresult submit_functions(const CallTarget& target, const FunctionsToSend& functions,
                          unsigned needs, Message&& message) {
  Session& session = target.session;
  const auto lost = [&] { return session.lost.load(); };
  const auto follow = [&] { follow_legacy(session, functions.stream); };
  for (;;) {
    bool is_early = false;
    const CUresult result =
        submit(session, target.context, functions.stream, needs, [&](uint64_t id) -> CUresult {
          is_early = functions.turns != nullptr &&
                     !session.host_turns.may_enter(functions.turns, functions.legacy, follow, lost);
          return is_early ? CUDA_ERROR_NOT_READY : message(id);
        });
    if (result == CUDA_SUCCESS && functions.turns != nullptr)
      session.host_turns.has_entered(functions.turns);
    if (!is_early) {
      (void)session.channel().flush();
      return result;
    }
    session.host_turns.wait_to_enter(functions.turns, functions.legacy, follow, lost);
  }
}

}  // namespace fargpu::client
