// A capture into a graph. For each stream that takes part it knows the nodes that the next one will
// depend on.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <vector>

#include "sim/context/capture.h"
#include "sim/context/stream.h"
#include "sim/graph/graph.h"

namespace fargpu::sim {

class StreamCapture final : public Capture {
 public:
  StreamCapture(std::shared_ptr<Graph> graph, CUstreamCaptureMode mode,
                const std::shared_ptr<Stream>& origin, CapturedPlace first);
  ~StreamCapture() override;

  CUresult add(const Stream& stream, CUgraphNodeParams& params,
               std::span<const CUlaunchAttribute> attributes) override;
  std::shared_ptr<CapturedPlace> place(const Stream& stream) const override;
  void join(const std::shared_ptr<Stream>& stream, const CapturedPlace& place) override;

  const std::shared_ptr<Graph>& graph() const { return graph_; }
  CapturedPlace& frontier(const Stream& stream) { return frontiers_.at(&stream); }
  // The stream's next node depends on none of these; they need not be joined.
  void leave(const Stream& stream);
  // The next work of the first stream would depend on all last captured nodes.
  bool joined() const;

 private:
  CUresult add(const Stream& stream, OperationPtr operation);
  void forget_last(const CapturedPlace& place);

  const std::shared_ptr<Graph> graph_;
  std::map<const Stream*, CapturedPlace> frontiers_;
  std::vector<CUgraphNode> last_;  // captured nodes that no other one depends on
};

}  // namespace fargpu::sim
