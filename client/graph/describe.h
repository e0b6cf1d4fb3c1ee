// A graph's description for the server (schema/graph_nodes.capnp), and the parts that stay in the
// client.
//
// Nodes are described in the order in which they were added, as far as edges allow; so two graphs
// made in the same way have equal descriptions, which the update of an executable graph relies on.
// A copy node may become a host node and a copy (host_copy.h).
//
// Needs the GraphLock. May ask the server; exposes host memory that nodes use.
#pragma once

#include <cuda.h>
#include <kj/array.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "client/graph/graph.h"
#include "client/graph/host_copy.h"

namespace capnp {
class word;
}

namespace fargpu::client {

// The call of a host node at each launch.
struct HostCall {
  uint64_t node = 0;  // id of the application's node
  CUhostFn function = nullptr;
  void* data = nullptr;
  std::shared_ptr<void> keeps;  // a HostCopy
};

// How one of the application's nodes is carried out.
struct Placed {
  uint32_t place = 0;  // on the server
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  NodeCopy::Way copy = NodeCopy::Way::kDriver;
  size_t host_call = 0;  // of a host node or a copy that has one, and of a child's first: its index
  std::shared_ptr<const CUDA_MEMCPY3D> given{};  // of a copy: as the application made or set it
  // Of a kernel's node without attributes: with other parameters for this function in this context
  // a driver takes what check_launch() does. 0: of other nodes.
  uint64_t function = 0;
  const Context* context = nullptr;
};

// An event that a node records.
struct RecordedEvent {
  uint64_t node = 0;  // id; 0: it was described alone
  CUevent event = nullptr;
};

// The nodes of an executable graph, which an update pairs with the nodes of a graph.
struct Counterparts {
  const std::unordered_map<uint64_t, Placed>& nodes;
  const std::vector<HostCall>& host_calls;
};

struct Description {
  std::vector<std::byte> bytes;
  std::unordered_map<uint64_t, Placed> nodes;  // by id
  std::vector<uint64_t> nodes_by_place;        // ids; a copy may have two places
  std::vector<HostCall> host_calls;            // in the order of places
  std::vector<CUdeviceptr> awaited;            // addresses of words that it waits for
  std::vector<RecordedEvent> recorded;
  bool interprocess = false;  // it has an event of other processes
  bool waits = false;         // it waits for an event

  // The node at a place that the server names; nullptr: none of the application's.
  CUgraphNode node_at(uint32_t place) const;
};

// The session of the graph's nodes; if none needs one, that of the current context.
// CUDA_ERROR_NOT_SUPPORTED: there are several.
CUresult session_of(const Graph& graph, Session** session);

// `for_kernels`: kernels launch it, so that no node may become a host node. `error`: the node at
// fault; nullptr: it is not known. CUDA_ERROR_INVALID_VALUE with *refused: why no driver
// instantiates such a graph.
// `update_of`: of the executable graph that is to be updated; null: the graph is instantiated. If
// its nodes are of the same types, copies keep their implementation (NodeCopy::Way), as in
// describe_node(). CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: a copy cannot change in this way.
CUresult describe(Session& session, const Graph& graph, bool for_kernels,
                  const Counterparts* update_of, Description* description, CUgraphNode* error,
                  CUgraphInstantiateResult* refused);
// One node without its edges. `placed`: how it was carried out up to now, which must not change;
// but a copy of ordinary memory may come to use none, and its host node then does nothing.
// `before`: the previous call of a copy's host node; nullptr: none.
CUresult describe_node(Session& session, const NodeParams& params, const Placed& placed,
                       const HostCopy* before, Description* description);

}  // namespace fargpu::client
