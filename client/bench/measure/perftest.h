// ib_write_lat and ib_write_bw of perftest as the bare link below rdma, both ends on this host.
// One thread.
#pragma once

#include <string>

#include "client/bench/figures/exchange.h"

namespace fargpu::bench {

// Which adapter they use, and at which address they meet.
struct PerftestPort {
  std::string device;  // "mlx5_0"
  unsigned port = 1, gid = 0;
  std::string host;
};

// Throws Failed where one of the programs is not in PATH.
void look_for_perftest();

// The questions of bare.h, for one connection: the typical time that the programs report, as one
// time. Throws Failed.
Answer measure_perftest(const PerftestPort& where, const Question& question);

}  // namespace fargpu::bench
