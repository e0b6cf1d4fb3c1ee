// The properties of this host that affect figures: processor, kernel, clock source, governor, load.
// Any thread.
#pragma once

#include "client/bench/figures/json.h"

namespace fargpu::bench {

// Members that the system does not tell are "unknown".
Json about_machine();
// Bytes that may be allocated without pushing anything out.
uint64_t available_memory();
// "2026-11-26T00:33:24Z".
std::string date_now();

}  // namespace fargpu::bench
