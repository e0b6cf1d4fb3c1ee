#include "server/job/unit_health.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "server/handover/control_socket.h"
#include "server/handover/inventory.h"
#include "server/handover/worker_messages.h"

namespace fargpu::server {
namespace {

constexpr auto kLongestPauseOfProbes = std::chrono::seconds(60);

}  // namespace

UnitHealth::UnitHealth(boost::asio::io_context& loop, Launcher& launcher, Rules rules,
                       const Placement& placement, OnChange on_change)
    : loop_(loop), launcher_(launcher), rules_(std::move(rules)), on_change_(std::move(on_change)) {
  for (size_t unit = 0; unit < placement.units().size(); ++unit) {
    auto grant = placement.preview({1, 0, {std::to_string(unit)}});
    units_.push_back({placement.units()[unit].uuid,
                      grant.ok() ? std::move(grant->environment) : Grant::Environment{},
                      boost::asio::steady_timer(loop), false, false, 0, Fd(), nullptr});
  }
}

UnitHealth::~UnitHealth() { stop(); }

void UnitHealth::stop() {
  stopped_ = true;
  for (State& state : units_) {
    state.timer.cancel();
    if (state.probe) state.probe->signal(SIGKILL);
  }
}

void UnitHealth::suspect(size_t unit) {
  const State& state = units_[unit];
  if (!state.out && !state.probe) probe(unit);
}

void UnitHealth::take_out(size_t unit, const std::string& why) {
  State& state = units_[unit];
  if (stopped_ || std::exchange(state.out, true)) return;
  on_change_(unit, why);
  if (!state.probe) probe_later(unit);
}

void UnitHealth::probe(size_t unit) {
  if (stopped_) return;
  const Status started = start_probe(unit);
  if (!started.ok()) fail(unit, started.message());
}

Status UnitHealth::start_probe(size_t unit) {
  State& state = units_[unit];
  FARGPU_ASSIGN_OR_RETURN(auto control, make_control_sockets());
  FARGPU_RETURN_IF_ERROR(
      send_message(control.first.get(), encode_probe({rules_.driver}), transport::Clock::now()));
  ProcessSetup setup;
  setup.program = rules_.program;
  setup.name = fmt::format("probe of GPU {}", unit);
  setup.environment = rules_.usual;
  setup.environment.insert(setup.environment.end(), state.granted.begin(), state.granted.end());
  setup.descriptors = {{control.second.get(), kControlFd}};
  FARGPU_ASSIGN_OR_RETURN(state.probe, WatchedProcess::start(loop_, launcher_, setup));
  state.control = std::move(control.first);
  state.late = false;
  state.probe->on_end([this, unit](const ProcessEnd& how) { probe_ended(unit, how); });
  state.timer.expires_after(rules_.limit);
  state.timer.async_wait([this, unit](const boost::system::error_code& error) {
    State& slow = units_[unit];
    if (error || !slow.probe) return;
    slow.late = true;
    slow.probe->signal(SIGKILL);
    take_out(unit, fmt::format("its driver does not open within {} s",
                               std::chrono::duration<double>(rules_.limit).count()));
  });
  return Status();
}

// What it has said lies in the socket.
Status UnitHealth::judge(const State& state, const ProcessEnd& how) const {
  const auto now = transport::Clock::now();
  auto answer = receive_message(state.control.get(), now);
  if (answer.ok()) answer = receive_message(state.control.get(), now);
  if (!answer.ok()) return {StatusCode::kDriver, "a probe of it " + how.describe()};
  FARGPU_ASSIGN_OR_RETURN(const Inventory found, parse_inventory(answer->body()));
  const bool there = std::any_of(found.units.begin(), found.units.end(),
                                 [&state](const Unit& one) { return one.uuid == state.uuid; });
  return there ? Status() : Status(StatusCode::kNotFound, "its driver does not find it");
}

void UnitHealth::probe_ended(size_t unit, const ProcessEnd& how) {
  State& state = units_[unit];
  const Status status =
      state.late ? Status(StatusCode::kTimeout, "its driver hangs") : judge(state, how);
  state.timer.cancel();
  state.control.reset();
  state.probe.reset();
  if (stopped_) return;
  if (!status.ok()) return fail(unit, status.message());
  state.failures = 0;
  if (std::exchange(state.out, false)) on_change_(unit, "");
}

void UnitHealth::fail(size_t unit, const std::string& why) {
  State& state = units_[unit];
  if (!std::exchange(state.out, true)) on_change_(unit, why);
  probe_later(unit);
}

void UnitHealth::probe_later(size_t unit) {
  State& state = units_[unit];
  const auto pause = rules_.first_pause * (1 << std::min(state.failures++, 10u));
  state.timer.expires_after(std::min<std::chrono::milliseconds>(pause, kLongestPauseOfProbes));
  state.timer.async_wait([this, unit](const boost::system::error_code& error) {
    if (!error && !units_[unit].probe) probe(unit);
  });
}

}  // namespace fargpu::server
