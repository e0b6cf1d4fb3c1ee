#include "client/transfer/touches.h"

#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "client/entry/call_target.h"
#include "client/process/process.h"
#include "client/settings/fetch_mode.h"
#include "client/transfer/submission.h"
#include "common/base/log.h"
#include "common/host/memory_page.h"
#include "common/host/thread.h"
#include "common/host/thread_stacks.h"
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

// Threads whose stacks are to stay open. They ask for it here and touch nothing else that the
// serving thread needs, whose own data is on no such stack.
struct StackToKeep {
  enum State : uint32_t { kFree, kBeingMade, kAsked, kDone };
  std::atomic<uint32_t> state{kFree};
  Session* session = nullptr;
  StackRange range;
};
constinit std::array<StackToKeep, 64> stacks_to_keep{};

void keep_stacks_open(Session& session) {
  for (StackToKeep& each : stacks_to_keep) {
    if (each.state != StackToKeep::kAsked || each.session != &session) continue;
    const auto [begin, end] = each.range;
    if (session.pages.any_gated(begin, end))
      log::warn(
          "mapped memory has the stack of a thread at 0x{:x}: it is fetched as a whole from now "
          "on, "
          "as with FARGPU_MAPPED=eager",
          begin);
    (void)keep_open(session, begin, end - begin);
    each.state = StackToKeep::kDone;
    each.state.notify_one();
  }
}

void keep_range_open(Session& session, StackRange range) {
  for (size_t i = 0;; i = (i + 1) % stacks_to_keep.size()) {
    StackToKeep& place = stacks_to_keep[i];
    uint32_t state = StackToKeep::kFree;
    if (!place.state.compare_exchange_strong(state, StackToKeep::kBeingMade)) continue;
    place.session = &session;
    place.range = range;
    place.state = StackToKeep::kAsked;
    session.gated_host.accesses().wake();
    while (place.state != StackToKeep::kDone) place.state.wait(StackToKeep::kAsked);
    place.state = StackToKeep::kFree;
    return;
  }
}

// An access that a handler of a signal makes while its thread is in a call waits for ever if the
// thread holds what the serving thread needs. Of that a line tells.
constinit std::atomic<uint64_t> turns{0};  // odd: the serving thread is at one
constinit std::atomic<bool> is_looked_at{false};

void look_at_turns() {
  constexpr auto kPatience = std::chrono::seconds(5);
  for (;;) {
    is_looked_at.wait(false);
    const uint64_t before = turns;
    std::this_thread::sleep_for(kPatience);
    if (before != turns) continue;
    if (before % 2 != 0)
      log::warn(
          "an access to mapped memory has waited for {} s: if a handler of a signal makes it while "
          "its thread is in a CUDA call, it waits for ever: set FARGPU_MAPPED=eager",
          kPatience.count());
    is_looked_at = false;
  }
}

void begin_turn() {
  ++turns;
  if (!is_looked_at.exchange(true)) is_looked_at.notify_one();
}

void serve(Session& session) {
  UserFaults& faults = session.gated_host.accesses();
  UserFaults::Accesses found;
  for (;;) {
    begin_turn();
    const auto next_look = session.pages.look();
    ++turns;
    faults.wait(next_look);
    begin_turn();
    const auto bring = [&session](uint64_t address, const UserFaults& from) {
      if (session.pages.bring(address) == CUDA_ERROR_NOT_MAPPED)
        from.retry(page_of(address), kPageBytes);
    };
    for (const UserFaults::Access& access : faults.take(found)) bring(access.address, faults);
    for (GatedHost::Wanted wanted; session.gated_host.next(&wanted);) {
      if (wanted.all)
        (void)session.pages.keep_open(wanted.address);
      else
        bring(wanted.address, session.gated_host.moves());
    }
    keep_stacks_open(session);
    ++turns;
  }
}

void take_reports(Session& session) {
  for (;;) {
    session.gated_host.moves().wait(std::nullopt);
    session.gated_host.serve_reports();
  }
}

// All of these threads live as long as the process.
void start_serving(Session& session) {
  std::call_once(session.touches_are_served, [&session] {
    Thread([&session] { serve(session); }).detach();
    Thread([&session] { settle(session); }).detach();
    Thread(look_at_turns).detach();
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
            each.gated_host.show_to_child(true);
          });
        },
        [] {
          Process::get().for_each_session([](Session& each) {
            each.gated_host.show_to_child(false);
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

std::shared_ptr<PageGate> gate_of(Session& session, const Region& region) {
  auto gate = comes_when_touched(session) ? session.gated_host.gate(region.base) : nullptr;
  if (gate == nullptr) return nullptr;
  start_serving(session);
  if (!gate->is_moved()) return gate;
  show_to_children();
  std::call_once(session.reports_are_taken,
                 [&session] { Thread([&session] { take_reports(session); }).detach(); });
  return gate;
}

CUresult keep_open(Session& session, uint64_t address, uint64_t bytes) {
  for (const uint64_t base : session.gated_host.keep(address, bytes)) {
    if (const CUresult result = session.pages.keep_open(base); result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

void keep_stack_open(Session& session) {
  constexpr uint64_t kFrames = 64u << 10;  // of a fiber
  struct Kept {
    uint64_t regions = 0;  // how many there had been
    bool own = false;
    uint64_t fiber = 0, alternate = 0;
  };
  thread_local Kept kept;
  if (const uint64_t regions = session.pages.gated_ever(); kept.regions != regions)
    kept = {.regions = regions};
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  if (const StackRange own = note_this_stack(); own.holds(here)) {
    if (!std::exchange(kept.own, true)) keep_range_open(session, own);
  } else if (std::exchange(kept.fiber, here / kFrames) != here / kFrames) {
    keep_range_open(session, {here - kFrames, here + kPageBytes});
  }
  stack_t alternate = {};
  if (::sigaltstack(nullptr, &alternate) != 0 || (alternate.ss_flags & SS_DISABLE) != 0) return;
  const auto begin = reinterpret_cast<uint64_t>(alternate.ss_sp);
  if (std::exchange(kept.alternate, begin) != begin)
    keep_range_open(session, {begin, begin + alternate.ss_size});
}

}  // namespace fargpu::client
