// Control flow of one function: basic blocks and their immediate post-dominators, where lanes that
// took different branches come together again.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/ptx/module.h"

namespace fargpu::sim::ptx {

struct BasicBlock {
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint32_t begin = 0, end = 0;  // instructions [begin, end)
  std::vector<uint32_t> successors;
  bool leaves = false;  // may leave the function (ret, exit, trap, the end)
  // a block, or kNone: only the end of the function (or nothing) follows for sure
  uint32_t post_dominator = kNone;
};

struct FlowGraph {
  std::vector<BasicBlock> blocks;  // in program order
  std::vector<uint32_t> block_of;  // of each instruction, and of the end of the body
};

// The labels of `function` are resolved.
FlowGraph build_flow_graph(const Function& function);

}  // namespace fargpu::sim::ptx
