#include "client/transfer/touches.h"

#include <pthread.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "client/entry/call_target.h"
#include "client/process/process.h"
#include "client/settings/mapped_mode.h"
#include "client/transfer/submission.h"
#include "common/base/log.h"
#include "common/host/memory_page.h"
#include "common/host/thread.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

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
        faults.retry(page_of(access.address), kPageBytes);
    }
    for (MovedHost::Wanted wanted; session.moved_host.next(&wanted);) {
      if (wanted.all) {
        (void)session.pages.keep_open(wanted.address);
      } else if (session.pages.bring(wanted.address) == CUDA_ERROR_NOT_MAPPED) {
        session.moved_host.retry(wanted.address);
      }
    }
  }
}

void take_reports(Session& session) {
  for (;;) {
    session.moved_host.faults().wait(std::nullopt);
    session.moved_host.serve_reports();
  }
}

// All of these threads live as long as the process.
void start_serving(Session& session) {
  std::call_once(session.touches_are_served, [&session] {
    Thread([&session] { serve(session); }).detach();
    Thread([&session] { settle(session); }).detach();
  });
}

// A child of fork() gets registered memory as it is, and has no part in what is fetched.
void show_to_children() {
  static std::once_flag once;
  std::call_once(once, [] {
    log::debug("registered memory is fetched on access");  // its lock is taken after these
    ::pthread_atfork(
        [] {
          Process::get().for_each_session([](Session& each) {
            each.pages.before_fork();
            each.moved_host.show_to_child(true);
          });
        },
        [] {
          Process::get().for_each_session([](Session& each) {
            each.moved_host.show_to_child(false);
            each.pages.after_fork();
          });
        },
        [] { Process::get().for_each_session([](Session& each) { each.pages.after_fork(); }); });
  });
}

}  // namespace

bool comes_when_touched(const Session& session) {
  const auto mode = read_mapped_mode();
  return mode.ok() && wants_touched(*mode) && Process::get().session(1) == nullptr &&
         session.knows(schema::op_fgPagesOnDemand) && session.knows(schema::op_fgPagesFetchPart);
}

void* allocate_touched(Session& session, size_t bytes) {
  void* const memory = session.touched_host.allocate(bytes);
  if (memory != nullptr) start_serving(session);
  return memory;
}

std::shared_ptr<PageGate> registered_gate(Session& session, const Region& region) {
  if (!comes_when_touched(session) || !session.touched_host.faults().open()) return nullptr;
  auto gate = session.moved_host.gate(region.base);
  if (gate == nullptr) return nullptr;
  show_to_children();
  std::call_once(session.reports_are_taken, [&session] {
    session.moved_host.waker = &session.touched_host.faults();
    Thread([&session] { take_reports(session); }).detach();
  });
  start_serving(session);
  return gate;
}

CUresult keep_open(Session& session, const std::optional<Region>& region, uint64_t address,
                   uint64_t bytes) {
  for (const uint64_t base : session.moved_host.keep(address, bytes)) {
    if (const CUresult result = session.pages.keep_open(base); result != CUDA_SUCCESS)
      return result;
  }
  if (!region || !session.touched_host.keep(region->base)) return CUDA_SUCCESS;
  const CUresult result = session.pages.keep_open(region->base);
  if (result == CUDA_SUCCESS) session.touched_host.kept(region->base);
  return result;
}

}  // namespace fargpu::client
