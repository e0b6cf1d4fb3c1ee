// One record of several participants' times: of all together, and of each.
#pragma once

#include <span>
#include <string>

#include "client/bench/figures/exchange.h"

namespace fargpu::bench {

inline Answer shared_record(const std::string& name, std::span<const Histogram> times) {
  Record record{name, {}, {}};
  for (const Histogram& one : times) {
    record.times.merge(one);
    record.shares.push_back({one.count(), one.median(), one.percentile(99)});
  }
  return {{std::move(record)}, ""};
}

}  // namespace fargpu::bench
