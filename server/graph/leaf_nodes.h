// Nodes without graphs inside of them: added to a graph of the driver's, or given other parameters
// there. All on the executor's thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <set>

#include "generated/schema/graph_nodes.capnp.h"
#include "server/graph/graph_builder.h"

namespace fargpu::server {

// Makes the context of the node current, if it has one.
CUresult enter_context(const GraphParts& parts, schema::graph::Node::Reader node,
                       CUcontext* context);

// The node behind `count` others. The data that a launch needs goes into `places`; the last of
// these is its own. *made: also a kernel node of which the driver refuses an attribute.
CUresult add_leaf(const GraphParts& parts, GraphPlaces& places, schema::graph::Node::Reader node,
                  CUgraph graph, const CUgraphNode* before, size_t count, CUcontext context,
                  CUgraphNode* made);

// The node `made` is to be as it is described now. `changed`: its parameters have. `had`: which
// attributes a kernel node may have. CUDA_ERROR_NOT_SUPPORTED: it cannot change.
CUresult change_leaf(const GraphParts& parts, GraphPlaces& places, schema::graph::Node::Reader node,
                     CUcontext context, bool changed, const std::set<CUlaunchAttributeID>& had,
                     CUgraphNode made);

std::set<CUlaunchAttributeID> attribute_ids(schema::graph::Node::Reader node);

CUresult add_edges(const DriverTable& driver, CUgraph graph, const CUgraphNode* from,
                   const CUgraphNode* to, const CUgraphEdgeData* data, size_t count);
CUresult remove_edge(const DriverTable& driver, CUgraph graph, CUgraphNode from, CUgraphNode to,
                     const CUgraphEdgeData& data);

}  // namespace fargpu::server
