// Makes calls on a thread of its own while a stream is held, and says which of them wait, and which
// calls of other threads wait with them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/driver_waits/caller.h"
#include "bench/driver_waits/steps.h"

namespace driver_waits {

class Asker {
 public:
  explicit Asker(World& world);

  World& world() { return world_; }

  // For these the stream is held already. They release it and wait for the context.
  std::string ask(const Call& call);
  // Calls `step` with 0, 1, ... until one waits, `limit` times at most.
  std::string fill(unsigned limit, const std::function<CUresult(unsigned)>& step);

  // False: the call waits, and the stream has been released.
  bool returns(const Call& call);

 private:
  struct Probe {
    Step step;
    std::unique_ptr<Caller> caller;
  };

  std::string stopped_probes();
  void end_hold();

  World& world_;
  Caller caller_;
  std::vector<Probe> probes_;
};

}  // namespace driver_waits
