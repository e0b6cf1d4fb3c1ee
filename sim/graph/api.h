// The common beginning of entry points about graphs.
#pragma once

#include <mutex>

#include "sim/graph/exec.h"
#include "sim/graph/graph.h"
#include "sim/object/api.h"

namespace fargpu::sim {

// body(): CUresult
template <typename Body>
CUresult with_graphs(Body&& body) noexcept {
  return with_driver([&](Driver&) -> CUresult {
    std::lock_guard lock(graph_mutex());
    return body();
  });
}

// body(Graph&)
template <typename Body>
CUresult with_graph(CUgraph handle, Body&& body) noexcept {
  return with_graphs([&]() -> CUresult {
    const auto graph = find_graph(handle);
    return graph ? body(*graph) : CUDA_ERROR_INVALID_VALUE;
  });
}

// body(Node&)
template <typename Body>
CUresult with_node(CUgraphNode handle, Body&& body) noexcept {
  return with_graphs([&]() -> CUresult {
    const auto node = find_node(handle);
    return node ? body(*node) : CUDA_ERROR_INVALID_VALUE;
  });
}

// body(Exec&)
template <typename Body>
CUresult with_exec(CUgraphExec handle, Body&& body) noexcept {
  return with_graphs([&]() -> CUresult {
    const auto exec = Driver::get().registry().find<Exec>(handle);
    return exec ? body(*exec) : CUDA_ERROR_INVALID_VALUE;
  });
}

// A node of an executable graph, by the node that it was made from: body(Exec&, Node& in it, Node&
// of the graph). The latter must still be there.
template <typename Body>
CUresult with_exec_node(CUgraphExec handle, CUgraphNode original, Body&& body) noexcept {
  return with_exec(handle, [&](Exec& exec) -> CUresult {
    const auto node = find_node(original);
    Node* own = node ? exec.find(node->handle) : nullptr;
    return own != nullptr ? body(exec, *own, *node) : CUDA_ERROR_INVALID_VALUE;
  });
}

// CUDA's way to return a list: `items` may be null to ask for the number; entries behind the last
// one become null.
template <typename Handle, typename List, typename Get>
void return_list(const List& list, Handle* items, size_t room, Get&& get) {
  for (size_t i = 0; items != nullptr && i < room; ++i)
    items[i] = i < list.size() ? get(list[i]) : nullptr;
}

inline CUgraphNode handle_of(const Node& node) { return to_handle<CUgraphNode>(node.handle); }
inline CUgraph handle_of(const Graph& graph) { return to_handle<CUgraph>(graph.handle); }

}  // namespace fargpu::sim
