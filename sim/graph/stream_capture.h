// A capture into a graph. For each stream that takes part it knows the nodes that the next one will
// depend on.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <vector>

#include "sim/driver/capture.h"
#include "sim/driver/stream.h"
#include "sim/graph/graph.h"

namespace fargpu::sim {

class StreamCapture final : public Capture {
 public:
  // `own`: the graph was made for the capture.
  StreamCapture(std::shared_ptr<Graph> graph, bool own, CUstreamCaptureMode mode,
                const std::shared_ptr<Stream>& origin, CapturedPlace first);
  ~StreamCapture() override;

  CUresult add(const Stream& stream, CUgraphNodeParams& params,
               std::span<const CUlaunchAttribute> attributes) override;
  std::shared_ptr<CapturedPlace> place(const Stream& stream) const override;
  void join(const std::shared_ptr<Stream>& stream, const CapturedPlace& place) override;
  // Another graph as a child graph node.
  CUresult add_graph(const Stream& stream, const Graph& graph);

  const std::shared_ptr<Graph>& graph() const { return graph_; }
  bool owns_graph() const { return own_; }
  CapturedPlace& frontier(const Stream& stream) { return frontiers_.at(&stream); }
  // What other streams did last is before what the first one did last.
  bool joined() const;

 private:
  CUresult add(const Stream& stream, OperationPtr operation);

  const std::shared_ptr<Graph> graph_;
  const bool own_;
  std::map<const Stream*, CapturedPlace> frontiers_;
};

}  // namespace fargpu::sim
