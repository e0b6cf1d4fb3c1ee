#include "server/graph/graph_editor.h"

#include <algorithm>
#include <cstring>

#include "schema/support/cuda_rules.h"
#include "server/graph/graph_base.h"
#include "server/graph/leaf_nodes.h"
#include "server/graph/node_params.h"

namespace fargpu::server {
namespace {

using Nodes = schema::graph::Nodes;
using Node = schema::graph::Node;
using Key = MadeGraph::Key;

bool same(const CUgraphEdgeData& a, const CUgraphEdgeData& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// A client of an earlier release names no ids: its nodes are known by their numbers.
std::vector<Key> keys_of(Nodes::Reader description) {
  const auto nodes = description.getNodes();
  const auto ids = description.getIds();
  require(ids.size() == 0 || ids.size() == nodes.size(), "not an id for each node");
  std::vector<Key> keys;
  std::set<Key> all;
  for (unsigned i = 0; i < nodes.size(); ++i) {
    Key key{ids.size() == 0 ? i : ids[i], nodes[i].which()};
    key.is_behind = key.kind == Node::HOST && all.contains({key.id, Node::COPY});
    require(all.insert(key).second, "a node stands there twice");
    keys.push_back(key);
  }
  return keys;
}

class Bytes {
 public:
  template <typename T>
  Bytes& add(T value) {
    const auto* const first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof value);
    return *this;
  }
  Bytes& add_all(capnp::Data::Reader data) {
    add(data.size());
    const auto* const first = reinterpret_cast<const std::byte*>(data.begin());
    bytes_.insert(bytes_.end(), first, first + data.size());
    return *this;
  }
  Bytes& add_kernel(schema::graph::Kernel::Reader kernel) {
    for (const uint32_t size :
         {kernel.getGridX(), kernel.getGridY(), kernel.getGridZ(), kernel.getBlockX(),
          kernel.getBlockY(), kernel.getBlockZ(), kernel.getSharedBytes()})
      add(size);
    return add(kernel.getFunction())
        .add_all(kernel.getParameters())
        .add_all(kernel.getAttributes());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// All that makes two nodes of a kind differ, but for edges and graphs inside.
std::vector<std::byte> parameters_of(Node::Reader node) {
  Bytes bytes;
  bytes.add(node.getContext());
  switch (node.which()) {
    case Node::KERNEL:
      bytes.add_kernel(node.getKernel());
      break;
    case Node::UPDATABLE:
      bytes.add(node.getUpdatable().getNumber()).add_kernel(node.getUpdatable().getKernel());
      break;
    case Node::COPY:
      bytes.add_all(node.getCopy());
      break;
    case Node::FILL:
      bytes.add_all(node.getFill());
      break;
    case Node::RECORD_EVENT:
      bytes.add(node.getRecordEvent());
      break;
    case Node::WAIT_EVENT:
      bytes.add(node.getWaitEvent());
      break;
    case Node::OPERATIONS:
      bytes.add(node.getOperations().getFlags()).add_all(node.getOperations().getOperations());
      break;
    case Node::ALLOCATION:
      bytes.add(node.getAllocation());
      break;
    case Node::FREE:
      bytes.add(node.getFree());
      break;
    case Node::CONDITIONAL:
      bytes.add(node.getConditional().getHandle())
          .add(node.getConditional().getType())
          .add(node.getConditional().getBodies().size());
      break;
    default:
      break;
  }
  return bytes.take();
}

void CUDA_CB do_nothing(void*) {}

}  // namespace

CUresult GraphEditor::edit(Nodes::Reader description, MadeGraph& made, const EarlyNodes& early,
                           unsigned depth) {
  require(depth < schema::kMaxGraphDepth, "graphs too deep inside each other");
  require(open_.insert(&made).second, "a graph inside of itself");
  const auto nodes = description.getNodes();
  const std::vector<Key> keys = keys_of(description);
  CUresult result = forget_others(keys, made);
  std::vector<CUgraphNode> earlier;
  for (unsigned i = 0; i < nodes.size() && result == CUDA_SUCCESS; ++i) {
    require(places_.nodes.size() < kMaxGraphNodes, "too many nodes");
    const size_t place = places_.nodes.size();
    places_.nodes.push_back(nullptr);
    CUgraphNode node = nullptr;
    result = put(nodes[i], keys[i], earlier, made, early, depth, &node);
    if (result == CUDA_SUCCESS)
      places_.nodes[place] = node;
    else if (places_.nodes.size() == place + 1)
      places_.nodes.pop_back();  // the place behind the others
    earlier.push_back(node);
  }
  places_.retired.insert(places_.retired.end(), made.retired.begin(), made.retired.end());
  for (const auto& [key, node] : made.left_over)
    (key.kind == Node::HOST ? places_.idle : places_.retired).push_back(node.node);
  open_.erase(&made);
  return result;
}

CUresult GraphEditor::forget_others(const std::vector<Key>& keys, MadeGraph& made) {
  const std::set<Key> stay(keys.begin(), keys.end());
  for (auto it = made.nodes.begin(); it != made.nodes.end();) {
    if (stay.contains(it->first)) {
      ++it;
      continue;
    }
    bool gone = false;
    if (const CUresult result = take_away(it->first, it->second, made, &gone);
        result != CUDA_SUCCESS)
      return result;
    auto node = made.nodes.extract(it++);
    if (gone) continue;
    node.mapped().parameters.clear();
    made.left_over.insert(std::move(node));
  }
  return CUDA_SUCCESS;
}

CUresult GraphEditor::take_away(const Key& key, const MadeNode& node, MadeGraph& made, bool* gone) {
  *gone = driver().cuGraphDestroyNode(node.node) == CUDA_SUCCESS;
  if (*gone) {
    note_gone(node);
    for (auto* const nodes : {&made.nodes, &made.left_over})
      for (auto& [other_key, other] : *nodes) other.before.erase(node.node);
    return CUDA_SUCCESS;
  }
  // A graph with memory keeps its nodes, and an application takes none away. But a copy that comes
  // to use other memory may need other nodes.
  switch (key.kind) {
    case Node::HOST: {
      const CUDA_HOST_NODE_PARAMS nothing{do_nothing, nullptr};
      return driver().cuGraphHostNodeSetParams(node.node, &nothing);
    }
    case Node::KERNEL:
    case Node::COPY:
      return driver().cuGraphNodeSetEnabled == nullptr ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

void GraphEditor::note_gone(const MadeNode& node) {
  gone_.insert(node.node);
  for (const MadeGraph& inside : node.inside)
    for (const auto& [key, other] : inside.nodes) note_gone(other);
}

CUresult GraphEditor::put(Node::Reader node, const Key& key,
                          const std::vector<CUgraphNode>& earlier, MadeGraph& made,
                          const EarlyNodes& early, unsigned depth, CUgraphNode* out) {
  const auto dependencies = node.getDependencies();
  const auto data =
      read_all<CUgraphEdgeData>(node.getEdges(), dependencies.size(), "wrong data of edges");
  require(data.empty() || data.size() == dependencies.size(), "wrong data of edges");
  Edges before;
  for (unsigned i = 0; i < dependencies.size(); ++i) {
    require(dependencies[i] < earlier.size(), "a node depends on a later one");
    before.emplace_back(earlier[dependencies[i]], data.empty() ? CUgraphEdgeData{} : data[i]);
  }
  CUcontext context = nullptr;
  CUresult result = enter_context(parts_, node, &context);
  if (result != CUDA_SUCCESS) return result;
  auto parameters = parameters_of(node);
  auto found = made.nodes.find(key);
  if (found == made.nodes.end() && made.left_over.contains(key))
    found = made.nodes.insert(made.left_over.extract(key)).position;
  const bool is_new = found == made.nodes.end();
  if (is_new) {
    MadeNode fresh;
    // Edges with data are made afterwards, and those of nodes that are there.
    std::vector<CUgraphNode> at_once;
    if (data.empty() && !node.isAllocation() && !node.isUpdatable())
      for (const auto& [from, edge] : before) at_once.push_back(from);
    result = add(node, made.graph, at_once, context, early, depth, &fresh);
    // A driver that refuses an attribute has the node all the same.
    if (fresh.node == nullptr) return result;
    for (CUgraphNode const from : at_once) fresh.before[from] = {};
    gone_.erase(fresh.node);
    found = made.nodes.emplace(key, std::move(fresh)).first;
  }
  MadeNode& known = found->second;
  const auto attributes = attribute_ids(node);
  const bool changed = parameters != known.parameters;
  // Until all of it is done: which parameters it has then is not known, nor which attributes.
  if (changed) known.parameters.clear();
  known.attributes.insert(attributes.begin(), attributes.end());
  // A node that was there before it was described has parameters of that time.
  if (result == CUDA_SUCCESS && (!is_new || node.isUpdatable()))
    result = change_leaf(parts_, places_, node, context, changed, known.attributes, known.node);
  if (result != CUDA_SUCCESS) return result;
  known.parameters = std::move(parameters);
  known.attributes = attributes;
  *out = known.node;
  result = connect(made.graph, before, known);
  if (result != CUDA_SUCCESS) return result;
  // A moved child was made before it was moved.
  return is_new && node.isMovedChild() ? CUDA_SUCCESS : edit_inside(node, known, depth);
}

CUresult GraphEditor::add(Node::Reader node, CUgraph graph, const std::vector<CUgraphNode>& before,
                          CUcontext context, const EarlyNodes& early, unsigned depth,
                          MadeNode* made) {
  const auto take = [&](std::span<const CUgraphNode> nodes, uint32_t number) {
    // The client may have ended the graph meanwhile: then it has none.
    if (number >= nodes.size()) return CUDA_ERROR_INVALID_HANDLE;
    made->node = nodes[number];
    return CUDA_SUCCESS;
  };
  switch (node.which()) {
    case Node::ALLOCATION:
      return take(early.allocations, node.getAllocation());
    case Node::UPDATABLE:
      return take(early.updatable, node.getUpdatable().getNumber());
    case Node::CHILD:
      return add_child(graph, before, made);
    case Node::CONDITIONAL:
      return add_conditional(node.getConditional(), graph, before, context, made);
    case Node::MOVED_CHILD:
      return add_moved_child(node.getMovedChild(), graph, before, depth, made);
    default:
      return add_leaf(parts_, places_, node, graph, before.data(), before.size(), context,
                      &made->node);
  }
}

// Empty, as the driver makes bodies: what is inside is edited there.
CUresult GraphEditor::add_child(CUgraph graph, const std::vector<CUgraphNode>& before,
                                MadeNode* made) {
  CUgraph empty = nullptr;
  CUresult result = driver().cuGraphCreate(&empty, 0);
  if (result != CUDA_SUCCESS) return result;
  result =
      driver().cuGraphAddChildGraphNode(&made->node, graph, before.data(), before.size(), empty);
  (void)driver().cuGraphDestroy(empty);
  if (result != CUDA_SUCCESS) return result;
  return driver().cuGraphChildGraphNodeGetGraph(made->node, &made->inside.emplace_back().graph);
}

CUresult GraphEditor::add_conditional(schema::graph::Conditional::Reader node, CUgraph graph,
                                      const std::vector<CUgraphNode>& before, CUcontext context,
                                      MadeNode* made) {
  if (driver().cuGraphAddNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = node.getHandle();
  params.conditional.type = static_cast<CUgraphConditionalNodeType>(node.getType());
  params.conditional.size = node.getBodies().size();
  params.conditional.ctx = context;
  const CUresult result = driver().cuGraphAddNode_v2(&made->node, graph, before.data(), nullptr,
                                                     before.size(), &params);
  for (unsigned i = 0; i < params.conditional.size && result == CUDA_SUCCESS; ++i)
    made->inside.emplace_back().graph = params.conditional.phGraph_out[i];
  return result;
}

// The driver takes the child itself.
CUresult GraphEditor::add_moved_child(schema::graph::MovedChild::Reader child, CUgraph graph,
                                      const std::vector<CUgraphNode>& before, unsigned depth,
                                      MadeNode* made) {
  if (driver().cuGraphAddNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  // It has a half already where it has allocations.
  SharedBase* shared = nullptr;
  const bool is_there = child.getGraph() != 0 && find(parts_, rpc::HandleKind::kGraph,
                                                      child.getGraph(), &shared) == CUDA_SUCCESS;
  std::shared_ptr<GraphBase> base = is_there ? *shared : GraphBase::make(parts_);
  if (base == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (base->get() == nullptr || base->get() == graph) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = edit(child.getNodes(), base->made(), base->early(), depth + 1);
  if (result != CUDA_SUCCESS) return result;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph = {base->get(), CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
  result = driver().cuGraphAddNode_v2(&made->node, graph, before.data(), nullptr, before.size(),
                                      &params);
  if (result != CUDA_SUCCESS) return result;
  made->inside.push_back(std::exchange(base->made(), {}));
  places_.moved.push_back(base);
  made->moved = std::move(base);
  return CUDA_SUCCESS;
}

// What cannot go, in a graph with memory, is an edge that the others imply.
CUresult GraphEditor::connect(CUgraph graph, const Edges& before, MadeNode& made) {
  for (auto it = made.before.begin(); it != made.before.end();) {
    const bool stays = std::any_of(before.begin(), before.end(), [&](const auto& edge) {
      return edge.first == it->first && same(edge.second, it->second);
    });
    if (!stays && remove_edge(driver(), graph, it->first, made.node, it->second) == CUDA_SUCCESS)
      it = made.before.erase(it);
    else
      ++it;
  }
  std::vector<CUgraphNode> from;
  std::vector<CUgraphEdgeData> data;
  for (const auto& [node, edge] : before) {
    if (made.before.contains(node)) continue;
    from.push_back(node);
    data.push_back(edge);
  }
  if (from.empty()) return CUDA_SUCCESS;
  const std::vector<CUgraphNode> to(from.size(), made.node);
  const CUresult result =
      add_edges(driver(), graph, from.data(), to.data(), data.data(), from.size());
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < from.size(); ++i) made.before[from[i]] = data[i];
  return CUDA_SUCCESS;
}

CUresult GraphEditor::edit_inside(Node::Reader node, MadeNode& made, unsigned depth) {
  if (node.isChild()) return edit(node.getChild(), made.inside.at(0), {}, depth + 1);
  if (node.isMovedChild()) {
    places_.moved.push_back(made.moved);
    return edit(node.getMovedChild().getNodes(), made.inside.at(0), made.moved->early(), depth + 1);
  }
  if (!node.isConditional()) return CUDA_SUCCESS;
  const auto bodies = node.getConditional().getBodies();
  for (unsigned i = 0; i < bodies.size(); ++i) {
    const CUresult result = edit(bodies[i], made.inside.at(i), {}, depth + 1);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::server
