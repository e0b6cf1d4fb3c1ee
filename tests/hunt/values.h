// Which values reads may return, when it is known which reads and writes come before which.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "tests/hunt/points.h"
#include "tests/hunt/program.h"

namespace fargpu::hunt {

// What one operation, or one node at one launch, does to memory.
struct Access {
  size_t operation = 0;
  int node = -1;
  Place to{}, from{};          // buffer -1: it writes, or reads, nothing
  uint32_t value = 0;          // what it writes if it reads nothing
  size_t read = 0, write = 0;  // points
};

// By access, then by segment of what it reads.
using Seen = std::vector<std::vector<std::set<uint32_t>>>;
Seen values_seen(const std::vector<Access>& accesses, const Points& points);

}  // namespace fargpu::hunt
