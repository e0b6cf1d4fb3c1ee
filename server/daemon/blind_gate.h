// BlindGate: for tests. Opens and closes the gates of all sessions by the clock, independently of
// the sessions' work. On the daemon's event loop.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <vector>

#include "common/base/status.h"
#include "server/handover/session_orders.h"

namespace fargpu::server {

class Sessions;

class BlindGate {
 public:
  struct Phase {
    Gate gate = Gate::kOpen;
    std::chrono::milliseconds time{};
  };
  // Of FARGPU_TEST_GATE, "OPEN/PERIOD" in milliseconds: outside its window a gate is shut. With
  // "OPEN/PERIOD/closed" it is closed, with "OPEN/PERIOD/both" first shut and then closed. None:
  // the variable is not set.
  static Result<std::vector<Phase>> phases_from_environment();

  // The sessions outlive it. Without phases it does nothing.
  BlindGate(boost::asio::io_context& loop, const Sessions& sessions)
      : timer_(loop), sessions_(sessions) {}
  void start(std::vector<Phase> phases);
  // Leaves the gates open.
  void stop();

 private:
  void enter(size_t phase);
  void set(Gate gate) const;

  boost::asio::steady_timer timer_;
  const Sessions& sessions_;
  std::vector<Phase> phases_;
};

}  // namespace fargpu::server
