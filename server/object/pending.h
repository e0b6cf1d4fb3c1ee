// The pending operations of a session: polled in order, between frames, until done. A wait whose
// captures are small allocates nothing, once there were as many waits at a time. One thread (the
// executor's).
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <utility>

#include "common/base/inline_function.h"

namespace fargpu::server {

class PendingList {
 public:
  using Clock = std::chrono::steady_clock;
  // Operations added from now on belong to this call, for descriptions.
  void begin_frame(uint16_t opcode) { opcode_ = opcode; }
  // Done when it returns true.
  using Poll = InlineFunction<bool(), 192>;
  void add(Poll poll) {
    if (unused_.empty()) unused_.emplace_back();
    operations_.splice(operations_.end(), unused_, unused_.begin());
    operations_.back() = {std::move(poll), Clock::now(), opcode_};
  }
  bool empty() const { return operations_.empty(); }
  size_t size() const { return operations_.size(); }

  // Polls each once, oldest first; polls that return true are removed. Operations added by a poll
  // are polled, too. How many went.
  size_t poll() {
    size_t done = 0;
    for (auto operation = operations_.begin(); operation != operations_.end();) {
      if (!operation->poll()) {
        ++operation;
        continue;
      }
      const auto over = operation++;
      over->poll.reset();
      unused_.splice(unused_.begin(), operations_, over);
      ++done;
    }
    return done;
  }

  struct Operation {
    Poll poll;
    Clock::time_point since{};
    uint16_t opcode = 0;
  };
  // Oldest first.
  const std::list<Operation>& operations() const { return operations_; }

 private:
  std::list<Operation> operations_;
  std::list<Operation> unused_;  // that were polled to their end
  uint16_t opcode_ = 0;
};

}  // namespace fargpu::server
