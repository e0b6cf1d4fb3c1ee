#include "client/graph/describe.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <cstring>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "client/entry/streams.h"
#include "client/graph/copy_change.h"
#include "client/image/launch.h"
#include "client/image/load.h"
#include "client/image/twins.h"
#include "client/process/process.h"
#include "client/transfer/exposure.h"
#include "common/base/log.h"
#include "common/wire/data.h"
#include "generated/schema/graph_nodes.capnp.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::client {
namespace {

using schema::is_wait;
using wire::as_data;

// As they were added, but none before one that it depends on. False: there is a cycle.
bool in_order(const Graph& graph, std::vector<const GraphNode*>* order) {
  std::unordered_map<const GraphNode*, std::pair<size_t, size_t>> state;  // number, open edges
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    state[graph.nodes[i]] = {i, graph.nodes[i]->before.size()};
    if (graph.nodes[i]->before.empty()) ready.push(i);
  }
  while (!ready.empty()) {
    const GraphNode* const node = graph.nodes[ready.top()];
    ready.pop();
    order->push_back(node);
    for (const GraphEdge& edge : node->after) {
      auto& [number, open] = state.at(edge.node);
      if (--open == 0) ready.push(number);
    }
  }
  return order->size() == graph.nodes.size();
}

// With those in the graphs inside.
size_t count_nodes(const Graph& graph) {
  size_t count = graph.nodes.size();
  for (const GraphNode* const node : graph.nodes)
    for (const Graph* const inside : node->inside) count += count_nodes(*inside);
  return count;
}

size_t count_nodes(const GraphNode& node) {
  size_t count = 1;
  for (const Graph* const inside : node.inside) count += count_nodes(*inside);
  return count;
}

// In the order of places. False: there is a cycle.
bool add_types(const Graph& graph, std::vector<CUgraphNodeType>* types) {
  std::vector<const GraphNode*> order;
  if (!in_order(graph, &order)) return false;
  for (const GraphNode* const node : order) {
    types->push_back(node->params.type());
    for (const Graph* const inside : node->inside)
      if (!add_types(*inside, types)) return false;
  }
  return true;
}

// The nodes of an executable graph in the order of their places; none if those of the graph are
// others.
std::vector<const Placed*> pair_nodes(const Counterparts& of, const Graph& graph) {
  std::vector<const Placed*> pairs;
  if (of.nodes.size() != count_nodes(graph)) return pairs;
  for (const auto& [id, placed] : of.nodes) pairs.push_back(&placed);
  std::ranges::sort(pairs, {}, [](const Placed* placed) { return placed->place; });
  std::vector<CUgraphNodeType> types;
  const auto is_alike = [](CUgraphNodeType type, const Placed* placed) {
    return type == placed->type;
  };
  if (!add_types(graph, &types) || !std::ranges::equal(types, pairs, is_alike)) pairs.clear();
  return pairs;
}

class Describer {
 public:
  // `with_ids`: the worker has the graph already. `calls_host`: plan_copy().
  Describer(Session& session, Description& description, bool with_ids, bool calls_host)
      : session_(session),
        description_(description),
        with_ids_(with_ids),
        calls_host_(calls_host) {}

  // What is described updates this, before everything else.
  void pair_with(const Counterparts& of, const Graph& graph) {
    pairs_ = pair_nodes(of, graph);
    host_calls_ = &of.host_calls;
  }

  CUresult describe(const Graph& graph, schema::graph::Nodes::Builder out) {
    const Deeper level(depth_);
    if (depth_ > schema::kMaxGraphDepth) {
      log::warn("graphs more than {} levels inside of each other are not supported",
                schema::kMaxGraphDepth);
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    std::vector<const GraphNode*> order;
    if (!in_order(graph, &order)) {
      refused = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
      // The first one that is in the cycle or behind it.
      const std::unordered_set<const GraphNode*> before(order.begin(), order.end());
      for (const GraphNode* const node : graph.nodes) {
        if (before.contains(node)) continue;
        error = node->handle();
        break;
      }
      return CUDA_ERROR_INVALID_VALUE;
    }
    // First how many nodes there will be.
    std::vector<NodeCopy> plans(order.size());
    std::vector<size_t> numbers(order.size());
    unsigned count = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      error = order[i]->handle();
      numbers[i] = i == 0 ? next_number_ : numbers[i - 1] + count_nodes(*order[i - 1]);
      if (const CUresult result = plan_as_paired(order[i]->params, numbers[i], &plans[i]);
          result != CUDA_SUCCESS)
        return result;
      if (bodies_ != 0 && !runs_in_bodies(*order[i], plans[i])) return CUDA_ERROR_INVALID_VALUE;
      count += parts(plans[i]);
    }
    auto nodes = out.initNodes(count);
    if (with_ids_) put_ids(order, plans, out.initIds(count));
    std::unordered_map<const GraphNode*, unsigned> last;  // by which others depend on the node
    unsigned next = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const GraphNode& node = *order[i];
      auto first = nodes[next];
      error = node.handle();
      next_number_ = numbers[i] + 1;
      put_edges(node, last, first);
      const CUresult result = put(node.id, node.params, node.inside, plans[i], [&](unsigned part) {
        auto builder = nodes[next + part];
        if (part > 0) builder.initDependencies(1).set(0, next + part - 1);
        return builder;
      });
      if (result != CUDA_SUCCESS) return result;
      next += parts_;
      last[&node] = next - 1;
    }
    error = nullptr;
    return CUDA_SUCCESS;
  }

  CUresult describe(const NodeParams& params, const Placed& placed, const HostCopy* before,
                    schema::graph::Nodes::Builder out) {
    NodeCopy copy;
    if (const CUresult result = plan(params, before, &copy); result != CUDA_SUCCESS) return result;
    keep_way(placed, &copy);
    if (params.type() != placed.type || copy.way != placed.copy) return CUDA_ERROR_INVALID_VALUE;
    // The server's part alone: its host node stays as it is.
    auto nodes = out.initNodes(1);
    capnp::MallocMessageBuilder unused;
    auto other = unused.initRoot<schema::graph::Node>();
    const unsigned own = copy.way == NodeCopy::Way::kHostThenDriver ? 1 : 0;
    std::vector<Graph*> inside;
    if (params.type() == CU_GRAPH_NODE_TYPE_GRAPH) {
      Graph* const child = find_graph(params.get().graph.graph);
      if (child == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (child->base != nullptr || child->has_memory) return CUDA_ERROR_NOT_SUPPORTED;
      inside.push_back(child);
    }
    return put(0, params, inside, copy,
               [&](unsigned part) { return part == own ? nodes[0] : other; });
  }

  CUgraphNode error = nullptr;
  CUgraphInstantiateResult refused = CUDA_GRAPH_INSTANTIATE_SUCCESS;

 private:
  using Builder = schema::graph::Node::Builder;

  static unsigned parts(const NodeCopy& plan) {
    return plan.way == NodeCopy::Way::kHostThenDriver || plan.way == NodeCopy::Way::kDriverThenHost
               ? 2
               : 1;
  }

  CUresult plan(const NodeParams& params, const HostCopy* before, NodeCopy* plan) {
    if (params.context_has_ended()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (params.context() != nullptr && params.context()->session != &session_) {
      log::warn("a graph has nodes on the GPUs of several servers: not supported");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (params.type() != CU_GRAPH_NODE_TYPE_MEMCPY) return CUDA_SUCCESS;
    const ContextScope scope(params.context());
    // A driver takes no host nodes in bodies of conditions.
    return plan_copy(session_, params.get().memcpy.copyParams, calls_host_ && bodies_ == 0, before,
                     plan);
  }

  // `number`: of the node, in the order of places.
  CUresult plan_as_paired(const NodeParams& params, size_t number, NodeCopy* copy) {
    const Placed* const was = pairs_.empty() ? nullptr : pairs_[number];
    if (was == nullptr || was->given == nullptr) return plan(params, nullptr, copy);
    if (!may_become(*was->given, params.get().memcpy.copyParams))
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    const auto* const before =
        was->copy == NodeCopy::Way::kDriver
            ? nullptr
            : static_cast<const HostCopy*>((*host_calls_)[was->host_call].keeps.get());
    const CUresult result = plan(params, before, copy);
    if (result == CUDA_SUCCESS) keep_way(*was, copy);
    return result;
  }

  // A copy of ordinary memory that comes to use none: its host node stays, and does nothing.
  static void keep_way(const Placed& was, NodeCopy* copy) {
    if (copy->way == NodeCopy::Way::kDriver && was.copy != NodeCopy::Way::kHost)
      copy->way = was.copy;
  }

  // Otherwise it says why not.
  bool runs_in_bodies(const GraphNode& node, const NodeCopy& plan) {
    if (!fits_in_bodies(node.params.type()))
      refused = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    else if (plan.way != NodeCopy::Way::kDriver)
      refused = CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;  // ordinary memory, as natively
    return refused == CUDA_GRAPH_INSTANTIATE_SUCCESS;
  }

  static void put_ids(const std::vector<const GraphNode*>& order,
                      const std::vector<NodeCopy>& plans, capnp::List<uint64_t>::Builder ids) {
    unsigned next = 0;
    for (size_t i = 0; i < order.size(); ++i)
      for (unsigned part = 0; part < parts(plans[i]); ++part) ids.set(next++, order[i]->id);
  }

  // Only between kernels a driver takes programmatic edges: what a capture has put elsewhere waits
  // for the end of the kernel.
  static CUgraphEdgeData sent(const GraphEdge& edge, const GraphNode& to) {
    const bool is_refused = edge.data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC &&
                            to.params.type() != CU_GRAPH_NODE_TYPE_KERNEL;
    return is_refused ? CUgraphEdgeData{} : edge.data;
  }

  static void put_edges(const GraphNode& node,
                        const std::unordered_map<const GraphNode*, unsigned>& last,
                        Builder& builder) {
    const auto count = static_cast<unsigned>(node.before.size());
    auto dependencies = builder.initDependencies(count);
    constexpr CUgraphEdgeData kPlain{};
    bool plain = true;
    for (unsigned i = 0; i < count; ++i) {
      dependencies.set(i, last.at(node.before[i].node));
      const CUgraphEdgeData edge = sent(node.before[i], node);
      plain = plain && std::memcmp(&edge, &kPlain, sizeof kPlain) == 0;
    }
    if (plain) return;
    auto data = builder.initEdges(static_cast<unsigned>(count * sizeof kPlain));
    for (unsigned i = 0; i < count; ++i) {
      const CUgraphEdgeData edge = sent(node.before[i], node);
      std::memcpy(data.begin() + i * sizeof kPlain, &edge, sizeof kPlain);
    }
  }

  // The next place is for this node; 0: it is described alone.
  uint32_t place(uint64_t id) {
    description_.nodes_by_place.push_back(id);
    return static_cast<uint32_t>(description_.nodes_by_place.size() - 1);
  }

  size_t add_host_call(uint64_t id, CUhostFn function, void* data, std::shared_ptr<void> keeps) {
    description_.host_calls.push_back({id, function, data, std::move(keeps)});
    return description_.host_calls.size() - 1;
  }

  // `builder(part)`: of the parts of the node, in order.
  template <typename BuilderOf>
  CUresult put(uint64_t id, const NodeParams& params, const std::vector<Graph*>& inside,
               const NodeCopy& plan, BuilderOf&& builder) {
    parts_ = parts(plan);
    const unsigned parts = parts_;
    Placed placed{.type = params.type(), .copy = plan.way};
    CUresult result = CUDA_SUCCESS;
    const auto put_host_copy = [&](unsigned part) {
      builder(part).setHost();
      HostCopy* const copy = plan.host.get();
      placed.host_call = add_host_call(
          id, copy != nullptr ? &HostCopy::run : [](void*) {}, copy, plan.host);
    };
    if (params.type() == CU_GRAPH_NODE_TYPE_KERNEL && params.device_node() == 0 &&
        params.attributes().empty()) {
      placed.function = params.function();
      placed.context = params.context();
    }
    if (params.type() == CU_GRAPH_NODE_TYPE_MEMCPY)
      placed.given = std::make_shared<const CUDA_MEMCPY3D>(params.get().memcpy.copyParams);
    if (plan.way == NodeCopy::Way::kHost) {
      placed.place = place(id);
      put_host_copy(0);
    } else if (plan.way == NodeCopy::Way::kHostThenDriver) {
      place(id);
      put_host_copy(0);
      placed.place = place(id);
      result = put_self(id, params, inside, plan, builder(1), &placed);
    } else {
      placed.place = place(id);
      result = put_self(id, params, inside, plan, builder(0), &placed);
      if (plan.way == NodeCopy::Way::kDriverThenHost) {
        place(id);
        put_host_copy(1);
      }
    }
    description_.nodes[id] = placed;
    parts_ = parts;  // graphs inside have had theirs
    return result;
  }

  CUresult put_self(uint64_t id, const NodeParams& params, const std::vector<Graph*>& inside,
                    const NodeCopy& plan, Builder builder, Placed* placed) {
    const CUgraphNodeParams& given = params.get();
    const ContextScope scope(params.context() != nullptr ? params.context() : current_context());
    if (params.context() != nullptr) builder.setContext(params.context()->wire_id);
    switch (params.type()) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        if (params.device_node() == 0) return put_kernel(params, builder.initKernel());
        builder.initUpdatable().setNumber(params.updatable());
        return put_kernel(params, builder.getUpdatable().initKernel());
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        builder.setCopy(as_data(&plan.driver, sizeof plan.driver));
        return CUDA_SUCCESS;
      case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS_v1 fill{};
        fill.dst = given.memset.dst;
        fill.pitch = given.memset.pitch;
        fill.value = given.memset.value;
        fill.elementSize = given.memset.elementSize;
        fill.width = given.memset.width;
        fill.height = given.memset.height;
        builder.setFill(as_data(&fill, sizeof fill));
        return expose_operands(session_, {fill.dst});
      }
      case CU_GRAPH_NODE_TYPE_HOST:
        builder.setHost();
        placed->host_call = add_host_call(id, given.host.fn, given.host.userData, nullptr);
        return CUDA_SUCCESS;
      case CU_GRAPH_NODE_TYPE_GRAPH: {
        const Graph& child = *inside[0];
        placed->host_call = description_.host_calls.size();
        if (!child.has_memory) return describe(child, builder.initChild());
        auto moved = builder.initMovedChild();
        moved.setGraph(child.base != nullptr ? child.id : 0);
        return describe(child, moved.initNodes());
      }
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
        const auto event = reinterpret_cast<uint64_t>(given.eventRecord.event);
        const auto* const found =
            static_cast<Event*>(session_.find(rpc::HandleKind::kEvent, event));
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (found->interprocess.load(std::memory_order_relaxed)) description_.interprocess = true;
        if (params.type() == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
          builder.setWaitEvent(event);
          description_.waits = true;
          return CUDA_SUCCESS;
        }
        builder.setRecordEvent(event);
        description_.recorded.push_back({id, given.eventRecord.event});
        return CUDA_SUCCESS;
      }
      case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return put_operations(given.memOp, builder.initOperations());
      case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        builder.setAllocation(params.allocation());
        return CUDA_SUCCESS;
      case CU_GRAPH_NODE_TYPE_MEM_FREE:
        builder.setFree(given.free.dptr);
        return CUDA_SUCCESS;
      case CU_GRAPH_NODE_TYPE_CONDITIONAL: {
        auto conditional = builder.initConditional();
        conditional.setHandle(given.conditional.handle);
        conditional.setType(given.conditional.type);
        auto bodies = conditional.initBodies(static_cast<unsigned>(inside.size()));
        ++bodies_;
        for (unsigned i = 0; i < inside.size(); ++i) {
          if (const CUresult result = describe(*inside[i], bodies[i]); result != CUDA_SUCCESS)
            return result;
        }
        --bodies_;
        return CUDA_SUCCESS;
      }
      default:
        builder.setEmpty();
        return CUDA_SUCCESS;
    }
  }

  CUresult put_kernel(const NodeParams& params, schema::graph::Kernel::Builder builder) {
    const uint64_t id = in_session(session_, params.function());
    Function* function = nullptr;
    if (const CUresult result =
            find_function(session_, reinterpret_cast<const void*>(id), &function);
        result != CUDA_SUCCESS)
      return result;
    builder.setFunction(id);
    put_shape(builder, shape_of(params.get().kernel));
    builder.setParameters(as_data(params.packed().data(), params.packed().size()));
    const auto& attributes = params.attributes();
    builder.setAttributes(as_data(attributes.data(), attributes.size() * sizeof attributes[0]));
    return expose_words(session_, params.packed().data(), params.packed().size());
  }

  CUresult put_operations(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& node,
                          schema::graph::Operations::Builder builder) {
    builder.setFlags(node.flags);
    builder.setOperations(as_data(node.paramArray, node.count * sizeof node.paramArray[0]));
    for (unsigned i = 0; i < node.count; ++i) {
      const CUstreamBatchMemOpParams& operation = node.paramArray[i];
      const CUdeviceptr address = operation.waitValue.address;  // where writes have theirs, too
      if (const CUresult result = expose_operands(session_, {address}); result != CUDA_SUCCESS)
        return result;
      if (is_wait(operation)) description_.awaited.push_back(address);
    }
    return CUDA_SUCCESS;
  }

  struct Deeper {
    explicit Deeper(unsigned& depth) : depth(++depth) {}
    ~Deeper() { --depth; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    unsigned& depth;
  };

  Session& session_;
  Description& description_;
  const bool with_ids_;
  const bool calls_host_;
  std::vector<const Placed*> pairs_;  // in the order of places; empty: there are none
  const std::vector<HostCall>* host_calls_ = nullptr;  // theirs
  size_t next_number_ = 0;                             // in that order
  unsigned parts_ = 1;                                 // of the last node
  unsigned depth_ = 0;
  unsigned bodies_ = 0;  // of conditions, around what is described
};

void take_bytes(capnp::MessageBuilder& message, Description* description) {
  const auto words = capnp::messageToFlatArray(message);
  const auto bytes = words.asBytes();
  description->bytes.resize(bytes.size());
  std::memcpy(description->bytes.data(), bytes.begin(), bytes.size());
}

bool has_other_session(const Graph& graph, Session** session) {
  if (graph.base != nullptr) {
    if (*session != nullptr && *session != graph.base) return true;
    *session = graph.base;
  }
  for (const GraphNode* const node : graph.nodes) {
    if (Context* const context = node->params.context()) {
      if (*session != nullptr && *session != context->session) return true;
      *session = context->session;
    }
    for (const Graph* const inside : node->inside)
      if (has_other_session(*inside, session)) return true;
  }
  return false;
}

}  // namespace

CUgraphNode Description::node_at(uint32_t place) const {
  return place < nodes_by_place.size() ? reinterpret_cast<CUgraphNode>(nodes_by_place[place])
                                       : nullptr;
}

CUresult session_of(const Graph& graph, Session** session) {
  *session = nullptr;
  if (has_other_session(graph, session)) {
    log::warn("a graph has nodes on the GPUs of several servers: not supported");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (*session == nullptr)
    *session =
        current_context() != nullptr ? current_context()->session : Process::get().session(0);
  return CUDA_SUCCESS;
}

CUresult describe(Session& session, const Graph& graph, bool for_kernels,
                  const Counterparts* update_of, Description* description, CUgraphNode* error,
                  CUgraphInstantiateResult* refused) {
  capnp::MallocMessageBuilder message;
  Describer describer(session, *description, graph.base != nullptr, !for_kernels);
  if (update_of != nullptr) describer.pair_with(*update_of, graph);
  const CUresult result = describer.describe(graph, message.initRoot<schema::graph::Nodes>());
  *error = describer.error;
  *refused = describer.refused;
  if (result == CUDA_SUCCESS) take_bytes(message, description);
  return result;
}

CUresult describe_node(Session& session, const NodeParams& params, const Placed& placed,
                       const HostCopy* before, Description* description) {
  capnp::MallocMessageBuilder message;
  // Copies of a child go the ways that they went when it was made.
  const bool calls_host =
      placed.copy != NodeCopy::Way::kDriver || placed.type == CU_GRAPH_NODE_TYPE_GRAPH;
  Describer describer(session, *description, /*with_ids=*/false, calls_host);
  const CUresult result =
      describer.describe(params, placed, before, message.initRoot<schema::graph::Nodes>());
  if (result == CUDA_SUCCESS) take_bytes(message, description);
  return result;
}

}  // namespace fargpu::client
