#include "client/transfer/host_functions.h"

#include <mutex>

#include "client/entry/function_order.h"
#include "client/managed/managed_memory.h"
#include "client/transfer/coherence.h"
#include "common/host/thread.h"
#include "common/wire/control.h"
#include "generated/client/wire/internal.h"
#include "generated/schema/control.capnp.h"

namespace fargpu::client {
namespace {

// Functions of the application see what kernels before them wrote, and kernels after them what they
// wrote.
void before(Session& session) {
  if (session.observers.any(Observers::kManagedMemory)) session.managed.work_is_done(std::nullopt);
  (void)after_synchronisation(session);
}

void has_returned(Session& session, uint64_t id) {
  if (session.channel().lost()) return;
  session.amendable_copies.amend();
  if (session.observers.any(Observers::kManagedMemory)) (void)session.managed.give_and_wait();
  const Submission kernels_after_it(session);
  rpc::Channel::Call call(session.channel(), wire::kHostCallDone, 0, 64);
  call.init<schema::HostCallDone>().setId(id);
  Status status = call.send();
  if (status.ok()) status = session.channel().flush();  // its stream is held until then
  if (!status.ok()) from_status(status);
}

[[noreturn]] void run_functions(Session& session) {
  for (;;) {
    const HostCalls::Due due = session.host_calls.next();
    if (due.tell) before(session);
    HostCalls::run(due);
    if (due.tell) has_returned(session, due.id);
    session.host_calls.ended(due);
  }
}

}  // namespace

HostCalls& functions_of(Session& session) {
  // As long as the process; so does the session.
  std::call_once(session.functions_are_run, [&session] {
    Thread([&session] { run_functions(session); }, StackFor::kTheProgram).detach();
  });
  return session.host_calls;
}

CUresult put_into_stream(const CallTarget& target, HostFunction function) {
  HostCalls& functions = functions_of(target.session);
  ResolvedStream resolved;
  if (const CUresult result = resolve_stream(target.session, function.stream, &resolved);
      result != CUDA_SUCCESS)
    return result;
  FunctionsToSend one{.stream = function.stream};
  if (resolved.state != nullptr) {
    function.turns = one.turns = make_turns(target.session, resolved);
    one.legacy = legacy_queue_beside(function.stream, resolved);
  }
  function.device = device_key(context_of(function.stream));
  const uint64_t id = functions.add(function);
  put_behind(target.session, function.stream, id);
  target.session.channel().await_notices();
  const int with_status = function.callback != nullptr ? 1 : 0;
  const CUresult result = submit_functions(target, one, Submission::kNothing, [&](uint64_t stream) {
    return wire::fgHostCall(target.session, target.context, stream, id, with_status);
  });
  if (result != CUDA_SUCCESS) functions.cancel(id);
  return result;
}

}  // namespace fargpu::client
