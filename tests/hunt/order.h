// What every read of a program may see, by what CUDA promises about order and by nothing else.
//
// Each operation becomes up to five points: its call begins and ends in its thread; it reads, and
// then writes, in its stream. So does each node of a graph, at each launch. Edges between points
// say "happens before". A read may return the value of a write that does not come after it, unless
// another write of the same place lies between the two. A copy passes on whatever it may have read.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tests/hunt/program.h"

namespace fargpu::hunt {

class Allowed {
 public:
  static constexpr int kNoNode = -1;
  // False: the host uses managed memory when it must not, and anything may happen. Only programs
  // that were made smaller are like that.
  bool legal = true;

  // By segment of what the operation, or the node at that launch, reads: the values that a word may
  // have, sorted. Empty where nothing is checked.
  const std::vector<std::vector<uint32_t>>& at(size_t operation, int node = kNoNode) const;
  const std::vector<std::vector<uint32_t>>& operator[](size_t operation) const {
    return at(operation);
  }
  void set(size_t operation, int node, std::vector<std::vector<uint32_t>> values) {
    values_[{operation, node}] = std::move(values);
  }

 private:
  std::map<std::pair<size_t, int>, std::vector<std::vector<uint32_t>>> values_;
};

Allowed allowed_values(const Program& program);

// Whether a word may be `seen` if it may have one of these values, which are sorted. Where there
// are several, writes race, and CUDA promises no more than that each byte is one of theirs.
bool may_be(const std::vector<uint32_t>& values, uint32_t seen);

}  // namespace fargpu::hunt
