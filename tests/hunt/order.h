// What every read of a program may see, by what CUDA promises about order and by nothing else.
//
// Each operation becomes up to five points: its call begins and ends in its thread; it reads, and
// then writes, in its stream. Edges between points say "happens before". A read may return the
// value of a write that does not come after it, unless another write of the same place lies between
// the two. A copy passes on whatever it may have read.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/hunt/program.h"

namespace fargpu::hunt {

// By operation, then by segment of what it reads: the values that a word may have, sorted.
// Operations that check nothing have an empty list.
using Allowed = std::vector<std::vector<std::vector<uint32_t>>>;

Allowed allowed_values(const Program& program);

}  // namespace fargpu::hunt
