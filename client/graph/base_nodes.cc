// Nodes of graphs that have a half at the server before they are instantiated: memory has an
// address of the driver's, a condition a handle of the driver's, which kernels receive.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "client/entry/to_wire.h"
#include "client/graph/describe.h"
#include "client/graph/graph.h"
#include "client/graph/host_copy.h"
#include "client/process/process.h"
#include "client/process/session.h"
#include "common/base/log.h"
#include "generated/client/wire/internal.h"

namespace fargpu::client {
namespace {

// A handle may be used by the graph that it was made for and by the bodies inside of it, so all of
// them are those of the outermost graph.
Graph& outermost(Graph& graph) {
  Graph* around = &graph;
  while (is_body(*around)) around = around->owner->graph;
  return *around;
}

CUresult use_base(Graph& graph, Session& session) {
  if (graph.base != nullptr && graph.base != &session) {
    log::warn("a graph has nodes on the GPUs of several servers: not supported");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  graph.base = &session;
  return CUDA_SUCCESS;
}

// Asks the session for a node or a handle of the graph's half there. What is refused leaves the
// graph as it was: one without a half can be copied.
template <typename Ask>
CUresult ask_base(Graph& graph, Session& session, Ask&& ask) {
  const bool is_first = graph.base == nullptr;
  CUresult result = use_base(graph, session);
  if (result != CUDA_SUCCESS) return result;
  result = ask();
  if (result != CUDA_SUCCESS && is_first) end_base(graph);
  return result;
}

// Memory of graphs and the node, of any graph, that frees it. Guarded by the GraphLock.
std::map<CUdeviceptr, uint64_t>& freed_by() {
  static auto& nodes = *new std::map<CUdeviceptr, uint64_t>;
  return nodes;
}

}  // namespace

void end_base(Graph& graph) {
  if (graph.base != nullptr && !graph.base->lost.load())
    (void)wire::fgGraphEnd(*graph.base, 0, graph.id);
  graph.base = nullptr;
}

bool is_body(const Graph& graph) {
  return graph.owner != nullptr && graph.owner->params.type() == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

bool has_moved_child(const GraphNode& node) {
  return node.params.type() == CU_GRAPH_NODE_TYPE_GRAPH &&
         node.params.get().graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
}

CUresult stands_alone(const Graph& graph) {
  if (graph.owner == nullptr) return CUDA_SUCCESS;
  return has_moved_child(*graph.owner) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

bool fits_in_bodies(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return true;
    default:
      return false;
  }
}

CUresult move_child(GraphNode& node, Graph& child) {
  if (const CUresult result = stands_alone(child); result != CUDA_SUCCESS) return result;
  for (const Graph* around = node.graph; around->owner != nullptr;) {
    around = around->owner->graph;
    if (around == &child) return CUDA_ERROR_INVALID_VALUE;
  }
  const bool is_updatable =
      std::any_of(child.nodes.begin(), child.nodes.end(),
                  [](const GraphNode* inside) { return inside->params.device_node() != 0; });
  if (has_condition(child) || !child.conditions.empty() || is_updatable)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (child.has_memory) {
    if (is_body(*node.graph)) return CUDA_ERROR_NOT_SUPPORTED;
    // No memory is added to a graph that is inside of another one already.
    if (node.graph->owner != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (child.base != nullptr) {
      const CUresult result = use_base(*node.graph, *child.base);
      if (result != CUDA_SUCCESS) return result;
    }
    node.graph->has_memory = true;
  }
  child.owner = &node;
  node.inside = {&child};
  return CUDA_SUCCESS;
}

namespace {

// A body takes nodes with memory, of a half of its own, though no graph with them is instantiated.
CUresult may_have_memory(const Graph& graph) {
  return is_body(graph) ? CUDA_SUCCESS : stands_alone(graph);
}

}  // namespace

CUresult allocate(GraphNode& node) {
  Graph& graph = *node.graph;
  if (const CUresult result = may_have_memory(graph); result != CUDA_SUCCESS) return result;
  const CUDA_MEM_ALLOC_NODE_PARAMS_v2& given = node.params.get().alloc;
  const int device = given.poolProps.location.id;
  Session& session = *Process::get().session_of_device(device);
  CUdeviceptr address = 0;
  unsigned number = 0;
  CUmemPoolProps pool = given.poolProps;
  std::vector<CUmemAccessDesc> access(given.accessDescs, given.accessDescs + given.accessDescCount);
  CUresult result = location_to_wire(session, &pool.location);
  for (CUmemAccessDesc& each : access)
    if (result == CUDA_SUCCESS) result = location_to_wire(session, &each.location);
  if (result != CUDA_SUCCESS) return result;
  result = ask_base(graph, session, [&] {
    return wire::fgGraphAllocate(session, 0, graph.id, &pool, access.data(), access.size(),
                                 given.bytesize, &address, &number);
  });
  if (result != CUDA_SUCCESS) return result;
  node.params.set_allocation(address, number);
  graph.has_memory = true;
  allocation_created(session, 0, address, given.bytesize);
  session.device_memory.change(address, [device, &graph](Region& region) {
    region.kind = MemoryKind::kPool;
    region.context = nullptr;
    region.device = device;
    region.of_graph = graph.id;
  });
  return CUDA_SUCCESS;
}

CUresult release(GraphNode& node) {
  if (const CUresult result = may_have_memory(*node.graph); result != CUDA_SUCCESS) return result;
  const CUdeviceptr address = node.params.get().free.dptr;
  const auto region = Process::get().tables()->device_memory.find(address);
  if (!region || !region->of_graph || region->base != address) return CUDA_ERROR_INVALID_VALUE;
  if (freed_by().contains(address) || node.graph->instantiated.contains(address))
    return CUDA_ERROR_INVALID_VALUE;
  // One node of all the driver's graphs frees it, too: this graph is made there once.
  Session& session = *Process::get().session_of_device(region->device);
  if (const CUresult result = use_base(*node.graph, session); result != CUDA_SUCCESS) return result;
  freed_by().emplace(address, node.id);
  node.graph->has_memory = true;
  return CUDA_SUCCESS;
}

std::vector<CUdeviceptr> memory_of_nodes(const Graph& graph) {
  std::vector<CUdeviceptr> memory;
  if (!graph.has_memory) return memory;
  for (const GraphNode* const node : graph.nodes)
    if (node->params.type() == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
      memory.push_back(node->params.get().alloc.dptr);
  return memory;
}

namespace {

// The node that frees the memory at the address in the graph that allocates it; nullptr: none does.
const GraphNode* freed_at_home(CUdeviceptr address) {
  const auto region = Process::get().tables()->device_memory.find(address);
  if (!region || !region->of_graph) return nullptr;
  const auto found = freed_by().find(region->base);
  if (found == freed_by().end()) return nullptr;
  const GraphNode* const node = find_node(reinterpret_cast<CUgraphNode>(found->second));
  return node != nullptr && node->graph->id == region->of_graph ? node : nullptr;
}

}  // namespace

CUresult check_memory(const NodeParams& params, const GraphNode* node) {
  if (freed_by().empty()) return CUDA_SUCCESS;
  std::vector<CUdeviceptr> used;
  if (params.type() == CU_GRAPH_NODE_TYPE_MEMSET) used = {params.get().memset.dst};
  if (params.type() == CU_GRAPH_NODE_TYPE_MEMCPY) {
    const CUDA_MEMCPY3D& copy = params.get().memcpy.copyParams;
    if (copy.srcMemoryType != CU_MEMORYTYPE_ARRAY) used.push_back(source_part(copy).address);
    if (copy.dstMemoryType != CU_MEMORYTYPE_ARRAY) used.push_back(destination_part(copy).address);
  }
  for (const CUdeviceptr address : used) {
    const GraphNode* const freeing = freed_at_home(address);
    if (freeing != nullptr && (node == nullptr || node->graph != freeing->graph))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

void node_ends(const GraphNode& node) {
  if (node.params.type() != CU_GRAPH_NODE_TYPE_MEM_FREE) return;
  const auto found = freed_by().find(node.params.get().free.dptr);
  if (found != freed_by().end() && found->second == node.id) freed_by().erase(found);
}

CUresult take_condition(GraphNode& node) {
  auto& conditions = outermost(*node.graph).conditions;
  const auto found =
      std::find(conditions.begin(), conditions.end(), node.params.get().conditional.handle);
  if (found == conditions.end()) return CUDA_ERROR_INVALID_VALUE;
  conditions.erase(found);
  std::vector<CUgraph> bodies;
  for (unsigned i = 0; i < node.params.get().conditional.size; ++i) {
    Graph* body = nullptr;
    if (const CUresult result = make_graph(&body); result != CUDA_SUCCESS) return result;
    body->owner = &node;
    node.inside.push_back(body);
    bodies.push_back(body->handle());
  }
  node.params.set_bodies(std::move(bodies));
  return CUDA_SUCCESS;
}

CUresult make_updatable(GraphNode& node) {
  Graph& graph = *node.graph;
  if (node.params.device_node() != 0) return CUDA_SUCCESS;
  if (graph.owner != nullptr) {
    log::warn("nodes that kernels update, in a graph inside of another one, are not supported");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (node.params.context_has_ended()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const Context& context = *node.params.context();
  Session& session = *context.session;
  Description description;
  CUresult result =
      describe_node(session, node.params, {.type = node.params.type()}, nullptr, &description);
  if (result != CUDA_SUCCESS) return result;
  unsigned long long device_node = 0;
  unsigned number = 0;
  result = ask_base(graph, session, [&] {
    return wire::fgGraphUpdatable(session, context.wire_id, graph.id, description.bytes.data(),
                                  description.bytes.size(), &device_node, &number);
  });
  if (result == CUDA_SUCCESS) node.params.set_device_node(device_node, number);
  return result;
}

CUresult set_kernel_attribute(CUgraphNode handle, CUkernelNodeAttrID id,
                              const CUkernelNodeAttrValue* value) {
  const GraphLock lock;
  GraphNode* const node = find_node(handle);
  if (node == nullptr || value == nullptr || node->params.type() != CU_GRAPH_NODE_TYPE_KERNEL)
    return CUDA_ERROR_INVALID_VALUE;
  if (id != CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
    return node->params.set_attribute(id, *value);
  if (value->deviceUpdatableKernelNode.devNode != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (value->deviceUpdatableKernelNode.deviceUpdatable != 1)
    return node->params.set_attribute(id, *value);
  const CUresult result = make_updatable(*node);
  if (result == CUDA_SUCCESS)
    (void)node->params.get_attribute(id, const_cast<CUkernelNodeAttrValue*>(value));
  return result;
}

CUresult make_condition(Graph& inside, Context& context, unsigned initial, unsigned flags,
                        CUgraphConditionalHandle* handle) {
  Graph& graph = outermost(inside);
  if (graph.owner != nullptr) {
    log::warn("conditions in the graph of a child node are not supported");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Session& session = *context.session;
  unsigned long long made = 0;
  const CUresult result = ask_base(graph, session, [&] {
    return wire::fgGraphConditional(session, context.wire_id, graph.id, initial, flags, &made);
  });
  if (result != CUDA_SUCCESS) return result;
  graph.conditions.push_back(made);
  *handle = made;
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
