#include "sim/ptx/cfg.h"

#include <algorithm>

namespace fargpu::sim::ptx {
namespace {

bool leaves_function(const Instruction& i) {
  return i.opcode == "ret" || i.opcode == "exit" || i.opcode == "trap";
}
bool is_branch(const Instruction& i) { return i.opcode == "bra" || i.opcode == "brx"; }

template <typename F>
void for_each_target(const Function& function, const Instruction& instruction, F visit) {
  for (const Operand& operand : instruction.operands) {
    if (operand.kind != Operand::Kind::kLabel) continue;
    const Label& label = function.labels[operand.index];
    if (label.targets.empty()) visit(label.position);
    for (const uint32_t target : label.targets) visit(function.labels[target].position);
  }
}

// Cooper, Harvey and Kennedy's iteration on the reversed graph. The last node is the virtual exit.
void find_post_dominators(std::vector<BasicBlock>& blocks) {
  const auto count = static_cast<uint32_t>(blocks.size());
  const uint32_t exit = count;
  std::vector<std::vector<uint32_t>> predecessors(count + 1);
  for (uint32_t b = 0; b < count; ++b) {
    for (const uint32_t s : blocks[b].successors) predecessors[s].push_back(b);
    if (blocks[b].leaves) predecessors[exit].push_back(b);
  }
  // Post order of the reversed graph from the exit, without recursion.
  std::vector<uint32_t> order(count + 1, BasicBlock::kNone), sequence;
  std::vector<std::pair<uint32_t, size_t>> stack = {{exit, 0}};
  std::vector<bool> seen(count + 1, false);
  seen[exit] = true;
  while (!stack.empty()) {
    auto& [node, next] = stack.back();
    if (next < predecessors[node].size()) {
      const uint32_t p = predecessors[node][next++];
      if (!seen[p]) {
        seen[p] = true;
        stack.emplace_back(p, 0);
      }
      continue;
    }
    order[node] = static_cast<uint32_t>(sequence.size());
    sequence.push_back(node);
    stack.pop_back();
  }
  std::vector<uint32_t> dominator(count + 1, BasicBlock::kNone);
  dominator[exit] = exit;
  const auto meet = [&](uint32_t a, uint32_t b) {
    while (a != b) {
      while (order[a] < order[b]) a = dominator[a];
      while (order[b] < order[a]) b = dominator[b];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = sequence.rbegin(); it != sequence.rend(); ++it) {
      const uint32_t node = *it;
      if (node == exit) continue;
      uint32_t best = blocks[node].leaves ? exit : BasicBlock::kNone;
      for (const uint32_t s : blocks[node].successors) {
        if (dominator[s] == BasicBlock::kNone) continue;
        best = best == BasicBlock::kNone ? s : meet(best, s);
      }
      if (best != dominator[node]) {
        dominator[node] = best;
        changed = true;
      }
    }
  }
  // Blocks of endless loops never leave. For the others they must count as an end of their own, or
  // lanes would wait for those that went there.
  bool endless = false;
  for (uint32_t b = 0; b < count; ++b) {
    if (dominator[b] != BasicBlock::kNone) continue;
    blocks[b].leaves = true;
    endless = true;
  }
  if (endless) return find_post_dominators(blocks);
  for (uint32_t b = 0; b < count; ++b) {
    blocks[b].post_dominator = dominator[b] == exit ? BasicBlock::kNone : dominator[b];
  }
}

}  // namespace

FlowGraph build_flow_graph(const Function& function) {
  const auto size = static_cast<uint32_t>(function.body.size());
  std::vector<bool> leader(size + 1, false);
  leader[0] = true;
  for (uint32_t i = 0; i < size; ++i) {
    const Instruction& instruction = function.body[i];
    if (is_branch(instruction) || leaves_function(instruction)) leader[i + 1] = true;
    for_each_target(function, instruction, [&](uint32_t target) { leader[target] = true; });
  }
  FlowGraph graph;
  graph.block_of.resize(size + 1);
  // A label at the very end of the body gets an empty block of its own.
  for (uint32_t i = 0; i <= size; ++i) {
    if (leader[i] && (i < size || i == 0 || leader[size])) {
      if (!graph.blocks.empty()) graph.blocks.back().end = i;
      graph.blocks.push_back({.begin = i, .end = size, .successors = {}});
    }
    graph.block_of[i] = static_cast<uint32_t>(graph.blocks.size() - 1);
  }
  for (uint32_t b = 0; b < graph.blocks.size(); ++b) {
    BasicBlock& block = graph.blocks[b];
    const auto follow = [&] {
      if (b + 1 < graph.blocks.size())
        block.successors.push_back(b + 1);
      else
        block.leaves = true;
    };
    if (block.begin == block.end) {
      follow();
      continue;
    }
    const Instruction& last = function.body[block.end - 1];
    if (is_branch(last)) {
      for_each_target(function, last,
                      [&](uint32_t t) { block.successors.push_back(graph.block_of[t]); });
      if (last.guarded) follow();
    } else if (leaves_function(last)) {
      block.leaves = true;
      if (last.guarded) follow();
    } else {
      follow();
    }
    std::sort(block.successors.begin(), block.successors.end());
    block.successors.erase(std::unique(block.successors.begin(), block.successors.end()),
                           block.successors.end());
  }
  find_post_dominators(graph.blocks);
  return graph;
}

}  // namespace fargpu::sim::ptx
