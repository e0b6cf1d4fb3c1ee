#include "client/transfer/touches.h"

#include <chrono>
#include <mutex>
#include <thread>

#include "client/entry/call_target.h"
#include "client/transfer/submission.h"
#include "common/host/thread.h"

namespace fargpu::client {
namespace {

constexpr size_t kPage = 4096;

bool find_idle(Session& session) {
  // While work is being sent there is no mark.
  const auto mark = session.pages.mark();
  if (!mark) return true;
  for (const Context* const context : session.contexts.active_of(session.number))
    if (await_context(session, context->wire_id) != CUDA_SUCCESS) return false;
  return session.pages.pull(mark) == CUDA_SUCCESS;
}

// Waits for all work of a session when that is asked for.
void settle(Session& session) {
  constexpr auto kAfterFailure = std::chrono::milliseconds(100);
  for (;;) {
    session.pages.await_settling();
    // Work that a context has left behind with an error may write for ever.
    if (!find_idle(session)) std::this_thread::sleep_for(kAfterFailure);
    session.pages.settled();
  }
}

void serve(Session& session) {
  UserFaults& faults = session.touched_host.faults();
  UserFaults::Accesses found;
  for (;;) {
    faults.wait(session.pages.look());
    for (const UserFaults::Access& access : faults.take(found)) {
      if (session.pages.bring(access.address) == CUDA_ERROR_NOT_MAPPED)
        faults.retry(access.address / kPage * kPage, kPage);
    }
  }
}

}  // namespace

void* allocate_touched(Session& session, size_t bytes) {
  void* const memory = session.touched_host.allocate(bytes);
  if (memory == nullptr) return nullptr;
  // Both threads live as long as the process.
  std::call_once(session.touches_are_served, [&session] {
    Thread([&session] { serve(session); }).detach();
    Thread([&session] { settle(session); }).detach();
  });
  return memory;
}

CUresult keep_open(Session& session, const Region& region) {
  if (!session.touched_host.keep(region.base)) return CUDA_SUCCESS;
  const CUresult result = session.pages.keep_open(region.base);
  if (result == CUDA_SUCCESS) session.touched_host.kept(region.base);
  return result;
}

}  // namespace fargpu::client
