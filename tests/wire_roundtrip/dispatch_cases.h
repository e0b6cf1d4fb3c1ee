// Requests that generated dispatch functions accept, and what stands behind them in the test.
// dispatch_cases.cc is generated.
#pragma once

#include <cstdint>
#include <vector>

#include "generated/server/driver_table.h"

namespace fargpu::wiretest {

struct DispatchCase {
  uint16_t opcode;
  const char* name;
  std::vector<std::byte> body;
};

// One valid request per generated function that has parameters.
std::vector<DispatchCase> dispatch_cases();

// Every function a success that does nothing.
void fill_driver(server::DriverTable* table);

}  // namespace fargpu::wiretest
