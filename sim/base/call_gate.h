// CallGate: lets the calls of this process in, or keeps them waiting (cuCheckpointProcessLock). One
// per process; any thread.
#pragma once

#include <chrono>
#include <optional>

namespace fargpu::sim {

class CallGate {
 public:
  using Clock = std::chrono::steady_clock;

  // One call, from its begin to its end. Waits while the gate is closed; calls inside of a call of
  // the same thread do not.
  class Pass {
   public:
    Pass();
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
  };

  // Returns when no call is inside any more. False: there still was one at the deadline; the gate
  // is open again.
  static bool close(std::optional<Clock::time_point> deadline);
  static void open();
};

}  // namespace fargpu::sim
