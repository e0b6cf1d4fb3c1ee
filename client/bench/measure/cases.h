// The measurements by name. A case executes its Question and returns its times; it throws Failed
// when the driver refuses. client/bench/plan.cc describes each name.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "client/bench/figures/exchange.h"
#include "client/bench/measure/gpu.h"

namespace fargpu::bench {

using Case = std::function<Answer(Gpu&, const Question&)>;
using Cases = std::map<std::string, Case>;

// One file each.
void add_calls(Cases& cases);
void add_launches(Cases& cases);
void add_copies(Cases& cases);

}  // namespace fargpu::bench
