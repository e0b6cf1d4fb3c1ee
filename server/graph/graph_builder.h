// Makes a graph of the driver's out of the client's description (schema/graph_nodes.capnp), which
// is checked here. Everything runs on the executor's thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "generated/schema/graph_nodes.capnp.h"
#include "server/core/core.h"
#include "server/image/parameter_layouts.h"
#include "server/stream/event_waits.h"
#include "server/stream/host_gate.h"

namespace fargpu::server {

class GraphBase;

// The parts of the session that the nodes of a graph need, which outlive the graphs.
struct GraphParts {
  const Core& core;
  const ParameterLayouts& parameter_layouts;
  // Before a kernel with so many bytes of local memory for each thread: OUT_OF_MEMORY.
  std::function<CUresult(uint64_t)> use_local;
  EventWaits& event_waits;
  HostGate& host_gate;
};

// Data of a graph, by the places of its nodes (schema/api/internal.yml).
struct GraphPlaces {
  std::vector<CUgraphNode> nodes;
  std::vector<std::shared_ptr<HostGate::Node>> host_nodes;  // in the order of their places
  std::vector<uint32_t> host_places;                        // these
  bool by_words = false;                                    // host nodes are made with words
  std::vector<uint16_t> word_contexts;                      // of host nodes that are replaced
  bool waits = false;                                       // for values in memory
  std::vector<std::shared_ptr<GraphBase>> moved;            // that are graphs inside of it now
  std::vector<CUgraphNode> retired;                         // that are to be disabled
  std::vector<CUgraphNode> idle;                            // host nodes that call nothing
  std::vector<CUdeviceptr> freed;                           // by its nodes

  static constexpr uint32_t kNone = 0xffffffff;
  uint32_t place_of(CUgraphNode node) const;  // kNone: it is no node of the graph
};

// More nodes than these in one description are refused.
inline constexpr size_t kMaxGraphNodes = 1u << 20;

// Adds the described nodes to `graph`, which is empty. *places: all of them, or the nodes before
// the refused one, whose place follows theirs. Throws kj::Exception for a description that no
// client makes.
CUresult build_graph(const GraphParts& parts, schema::graph::Nodes::Reader description,
                     CUgraph graph, GraphPlaces* places);

// Gives other parameters to the node of `exec` that was made from this node of the graph. *child:
// for a child, data of its new nodes.
CUresult set_node(const GraphParts& parts, CUgraphExec exec, CUgraphNode node,
                  schema::graph::Node::Reader description, GraphPlaces* child);

}  // namespace fargpu::server
