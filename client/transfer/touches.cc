#include "client/transfer/touches.h"

#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "client/transfer/pages_wire.h"
#include "common/base/thread.h"

namespace fargpu::client {
namespace {

constexpr size_t kPage = 4096;

// A thread that waits for all work of a session when it is asked to. Lives as long as the process.
class IdleWatch {
 public:
  explicit IdleWatch(Session& session) : session_(session) {
    Thread([this] { run(); }).detach();
  }
  void ask() {
    std::lock_guard lock(mutex_);
    asked_ = true;
    changed_.notify_one();
  }

 private:
  void run() {
    constexpr auto kAfterFailure = std::chrono::milliseconds(100);
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return asked_; });
        asked_ = false;
      }
      // Work that a context has left behind with an error may write for ever.
      if (!find_idle()) std::this_thread::sleep_for(kAfterFailure);
      session_.pages.settled();
    }
  }
  bool find_idle() {
    // While work is being sent there is no mark.
    const auto mark = session_.pages.mark();
    if (!mark) return true;
    for (const Context* const context : session_.contexts.active_of(session_.number))
      if (call_cuCtxSynchronize(session_, context->wire_id) != CUDA_SUCCESS) return false;
    PagesWire wire(session_);
    return session_.pages.pull(wire, mark) == CUDA_SUCCESS;
  }

  Session& session_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false;  // guarded by mutex_
};

}  // namespace

UserFaults::Service service_of_touches(Session& session) {
  // Made by whoever needs it first, and then for good.
  struct Lazy {
    std::once_flag once;
    IdleWatch* watch = nullptr;
  };
  const auto lazy = std::make_shared<Lazy>();
  session.pages.set_helpers({.wake = [&session] { session.touched_host.faults().wake(); },
                             .settle =
                                 [&session, lazy] {
                                   std::call_once(lazy->once,
                                                  [&] { lazy->watch = new IdleWatch(session); });
                                   lazy->watch->ask();
                                 }});
  return {[&session](uint64_t address, bool) {
            PagesWire wire(session);
            if (session.pages.bring(wire, address) == CUDA_ERROR_NOT_MAPPED)
              session.touched_host.faults().retry(address / kPage * kPage, kPage);
          },
          [&session] { return session.pages.look(); }};
}

CUresult keep_open(Session& session, const Region& region) {
  if (!session.touched_host.keep(region.base)) return CUDA_SUCCESS;
  PagesWire wire(session);
  const CUresult result = session.pages.keep_open(wire, region.base);
  if (result == CUDA_SUCCESS) session.touched_host.kept(region.base);
  return result;
}

void before_exit(Session& session) {
  if (!session.pages.any_gated() || session.lost.load()) return;
  // A worker that takes nothing any more must not keep the process from ending.
  constexpr auto kPatience = std::chrono::seconds(5);
  auto brought = std::make_shared<std::promise<void>>();
  auto done = brought->get_future();
  Thread([&session, brought] {
    PagesWire wire(session);
    (void)session.pages.keep_all_open(wire);
    brought->set_value();
  }).detach();
  (void)done.wait_for(kPatience);
}

}  // namespace fargpu::client
