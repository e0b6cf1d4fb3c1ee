// UnitHealth: a GPU whose driver hangs or fails is out of service until a probe of it succeeds. On
// the daemon's event loop.
//
// A probe is a fargpu-worker that opens the driver on that GPU alone and describes it. There is one
// at a time for each GPU, and none while an earlier one cannot be killed: it would hang, too.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "server/launch/watched_process.h"
#include "server/placement/placement.h"

namespace fargpu::server {

class UnitHealth {
 public:
  struct Rules {
    std::string program;       // path of fargpu-worker
    std::string driver;        // path
    Grant::Environment usual;  // environment besides that of the GPU
    std::chrono::milliseconds limit = std::chrono::seconds(30);  // of a probe
    // Behind a probe that has failed, doubled with each further one.
    std::chrono::milliseconds first_pause = std::chrono::seconds(2);
  };
  // `why` empty: it is in service again.
  using OnChange = std::function<void(size_t unit, const std::string& why)>;
  UnitHealth(boost::asio::io_context& loop, Launcher& launcher, Rules rules,
             const Placement& placement, OnChange on_change);
  ~UnitHealth();

  // A worker could not open its driver, or answers nothing: a probe decides.
  void suspect(size_t unit);
  // Its driver has a process that cannot be killed: it is out of service at once.
  void take_out(size_t unit, const std::string& why);
  // Ends probes; there are no more.
  void stop();

 private:
  struct State {
    std::string uuid;
    Grant::Environment granted;
    boost::asio::steady_timer timer;
    bool out = false;
    bool late = false;  // the present probe
    unsigned failures = 0;
    Fd control;
    std::shared_ptr<WatchedProcess> probe;
  };
  void probe(size_t unit);
  Status start_probe(size_t unit);
  void probe_ended(size_t unit, const ProcessEnd& how);
  Status judge(const State& state, const ProcessEnd& how) const;
  void fail(size_t unit, const std::string& why);
  void probe_later(size_t unit);

  boost::asio::io_context& loop_;
  Launcher& launcher_;
  const Rules rules_;
  const OnChange on_change_;
  std::vector<State> units_;
  bool stopped_ = false;
};

}  // namespace fargpu::server
