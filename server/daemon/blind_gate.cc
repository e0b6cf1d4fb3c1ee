#include "server/daemon/blind_gate.h"

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <utility>

#include "common/base/env.h"
#include "server/daemon/sessions.h"

namespace fargpu::server {

using std::chrono::milliseconds;

Result<std::vector<BlindGate::Phase>> BlindGate::phases_from_environment() {
  constexpr const char* kName = "FARGPU_TEST_GATE";
  constexpr unsigned kMost = 60'000;
  const auto text = env_text(kName);
  if (!text) return std::vector<Phase>{};
  unsigned open = 0, period = 0;
  int length = 0;
  const int found = std::sscanf(text->c_str(), "%u/%u%n", &open, &period, &length);
  const std::string how = found == 2 ? text->substr(static_cast<size_t>(length)) : "wrong";
  const bool known = how.empty() || how == "/closed" || how == "/both";
  if (!known || open == 0 || open >= period || period > kMost) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}={}: not OPEN/PERIOD in milliseconds", kName, *text));
  }
  const milliseconds rest(period - open), half = rest / 2;
  std::vector<Phase> phases{{Gate::kOpen, milliseconds(open)}};
  if (how != "/closed") phases.push_back({Gate::kShut, how.empty() ? rest : half});
  if (!how.empty()) phases.push_back({Gate::kClosed, how == "/both" ? rest - half : rest});
  return phases;
}

void BlindGate::start(std::vector<Phase> phases) {
  phases_ = std::move(phases);
  if (phases_.empty()) return;
  timer_.expires_after(milliseconds(0));
  enter(0);
}

void BlindGate::enter(size_t phase) {
  set(phases_[phase].gate);
  timer_.expires_at(timer_.expiry() + phases_[phase].time);
  timer_.async_wait(
      [this, next = (phase + 1) % phases_.size()](const boost::system::error_code& cancelled) {
        if (!cancelled && !phases_.empty()) enter(next);
      });
}

void BlindGate::stop() {
  if (phases_.empty()) return;
  phases_.clear();
  timer_.cancel();
  set(Gate::kOpen);
}

void BlindGate::set(Gate gate) const {
  for (const auto& [id, session] : sessions_.all()) {
    if (!session.management) session.orders->set(gate);
  }
}

}  // namespace fargpu::server
