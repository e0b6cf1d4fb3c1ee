// EndedSessions: waits for other sessions on this session's GPUs whose client has ended. Their
// workers still hold memory until they have ended, too; natively the memory is back when the
// program can be waited for. So queries of free memory, and requests that do not fit, wait for
// them.
//
// The daemon knows these workers (schema/worker.capnp, `awaitEnded`). It is asked once at a time:
// later requests wait for the next answer, because a client may have ended in between. One thread
// (the executor's).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "server/core/core.h"
#include "server/handover/session_orders.h"

namespace fargpu::server {

class EndedSessions {
 public:
  // The daemon's side of the session. Without a socket there is no wait.
  struct Source {
    int control = -1;
    uint16_t version = 0;  // of the daemon's protocol
    const SessionOrders* orders = nullptr;
  };
  // Beyond the daemon's own limit.
  static constexpr std::chrono::milliseconds kLimit{15000};

  EndedSessions(const Core& core, const Source& source) : core_(core), source_(source) {}

  // There are others on the GPUs. One relaxed load.
  bool any_others() const;
  // `then` runs between frames, when none is left that had ended at this call, or after kLimit.
  void wait(std::function<void()> then);
  // The daemon's answer.
  void answered(uint32_t sequence);

 private:
  struct Batch {
    bool over = false;
  };
  void ask();

  const Core core_;
  const Source source_;
  uint32_t sequence_ = 0;
  std::shared_ptr<Batch> asked_, next_;  // the daemon was asked; is to be asked then
};

}  // namespace fargpu::server
