// A graph as a DOT file, with the parameters that are asked for.
#include <fmt/core.h>

#include <fstream>
#include <string>
#include <unordered_map>

#include "sim/graph/api.h"

using namespace fargpu::sim;

namespace {

const char* name_of(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "CONDITIONAL";
    default:
      return "UNKNOWN";
  }
}

// The parameters of one node that `flags` ask for, each on a line.
std::string details(const Operation& operation, unsigned flags) {
  CUgraphNodeParams params;
  operation.params(&params);
  const auto wants = [flags](unsigned flag) {
    return (flags & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0;
  };
  if (params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    const auto& kernel = params.kernel;
    const char* name = "?";
    (void)cuFuncGetName(&name, kernel.func);
    if (!wants(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) return fmt::format("\\n{}", name);
    return fmt::format("\\n{}\\ngrid {},{},{}\\nblock {},{},{}\\nshared {}", name, kernel.gridDimX,
                       kernel.gridDimY, kernel.gridDimZ, kernel.blockDimX, kernel.blockDimY,
                       kernel.blockDimZ, kernel.sharedMemBytes);
  }
  if (params.type == CU_GRAPH_NODE_TYPE_MEMCPY &&
      wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS)) {
    const CUDA_MEMCPY3D& copy = params.memcpy.copyParams;
    return fmt::format("\\nextent {},{},{}", copy.WidthInBytes, copy.Height, copy.Depth);
  }
  if (params.type == CU_GRAPH_NODE_TYPE_MEMSET &&
      wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS)) {
    const auto& memset = params.memset;
    return fmt::format("\\nvalue {}\\nelement {}\\nextent {},{}", memset.value, memset.elementSize,
                       memset.width, memset.height);
  }
  return {};
}

void write(std::ostream& out, const Graph& graph, unsigned flags, unsigned* number) {
  const unsigned own = (*number)++;
  std::unordered_map<const Node*, size_t> places;
  const auto id = [&](const Node* node) {
    return fmt::format("graph_{}_node_{}", own, places.at(node));
  };
  out << fmt::format("subgraph cluster_{0} {{\nlabel=\"graph_{0}\"\n", own);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = *graph.nodes[i];
    places[&node] = i;
    out << fmt::format("\"{}\" [label=\"{}\\n{}{}\"];\n", id(&node), i,
                       name_of(node.operation->type()), details(*node.operation, flags));
  }
  for (const auto& node : graph.nodes) {
    for (const auto& [from, data] : node->dependencies)
      out << fmt::format("\"{}\" -> \"{}\";\n", id(from), id(node.get()));
  }
  for (const auto& node : graph.nodes) {
    for (const auto& body : node->operation->bodies()) write(out, *body, flags, number);
  }
  out << "}\n";
}

}  // namespace

CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  return with_graph(hGraph, [&](Graph& graph) -> CUresult {
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::ofstream file(path);
    unsigned number = 0;
    file << "digraph dot {\n";
    write(file, graph, flags, &number);
    file << "}\n";
    return file.flush() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  });
}
