// ExecutableGraph: an executable graph of the driver's, and the graph that it was made from, by
// whose nodes it is changed. The handle table maps the id of a graphexec to it; kept_objects.h
// keeps it as long as the id. Everything but its end runs on the executor's thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/graph/graph_base.h"
#include "server/graph/graph_builder.h"
#include "server/graph/node_params.h"

namespace fargpu::server {

class ExecutableGraph : public std::enable_shared_from_this<ExecutableGraph> {
 public:
  // The driver's result of an instantiation or an update.
  struct Outcome {
    CUresult result = CUDA_SUCCESS;
    int found = 0;  // CUgraphInstantiateResult or CUgraphExecUpdateResult
    uint32_t error_place = GraphPlaces::kNone;
    uint32_t error_from_place = GraphPlaces::kNone;
  };

  explicit ExecutableGraph(const GraphParts& parts)
      : parts_(parts), made_(std::make_shared<Made>(parts.core.driver)) {}
  // Launches under way go on.
  ~ExecutableGraph();
  ExecutableGraph(const ExecutableGraph&) = delete;
  ExecutableGraph& operator=(const ExecutableGraph&) = delete;

  // Once, before everything else. Like build_graph(), these two may throw.
  // `base`: of the described graph; null: it has none.
  Outcome instantiate(schema::graph::Nodes::Reader description, std::shared_ptr<GraphBase> base,
                      unsigned long long flags);
  Outcome update(schema::graph::Nodes::Reader description, std::shared_ptr<GraphBase> base);
  // CUDA_ERROR_INVALID_VALUE, of all three: there is no such node, or not any more.
  CUresult set_node(uint32_t place, schema::graph::Node::Reader description);
  CUresult set_kernel(uint32_t place, CUcontext context, const GivenKernel& kernel);
  CUresult enable_node(uint32_t place, bool enabled);
  // A change that nobody waited for was refused: the next launch is to fail with this, once.
  void refuse_launch(CUresult result) { refused_ = result; }
  CUresult take_refusal() { return std::exchange(refused_, CUDA_SUCCESS); }

  // The driver's, which ends once, on any thread.
  class Made {
   public:
    explicit Made(const DriverTable& driver) : driver_(driver) {}
    ~Made() { (void)end(); }
    Made(const Made&) = delete;
    Made& operator=(const Made&) = delete;
    CUresult end();

   private:
    friend class ExecutableGraph;
    const DriverTable& driver_;
    std::atomic<CUgraphExec> exec_{nullptr};
  };
  CUgraphExec get() const { return made_->exec_.load(std::memory_order_relaxed); }
  const std::shared_ptr<Made>& made() const { return made_; }
  // The stream of the last launch, which the others are in front of; context 0: there was none.
  struct Launched {
    uint16_t context = 0;
    CUstream stream = nullptr;
  };
  void note_launch(const Launched& in) { launched_ = in; }
  const Launched& launched() const { return launched_; }
  // The client has destroyed it, and the driver's lives on for a while (ended_graphs.h).
  void note_ending();
  // It was made or updated from a graph that the worker edits.
  bool is_edited() const { return base_ != nullptr || !updated_with_.empty(); }
  bool uses(const GraphBase& base) const;
  // Kernels may launch it; they know it by the driver's value.
  bool is_for_kernels() const { return for_kernels_; }
  const GraphPlaces& places() const { return places_; }
  // Memory that a launch allocates and does not free, and memory of other graphs that it frees.
  const std::vector<CUdeviceptr>& leaves() const { return leaves_; }
  const std::vector<CUdeviceptr>& frees() const { return frees_; }

 private:
  void note_memory(const GraphPlaces& places, const GraphBase* base);
  CUresult make(CUgraph graph, unsigned long long flags, Outcome* outcome);
  // Of the words of its host nodes, from one on.
  std::vector<uint16_t> word_contexts(size_t first) const;
  bool has_the_same_left_over(const GraphPlaces& other) const;
  bool has_node(uint32_t place) const;

  const GraphParts parts_;
  std::shared_ptr<GraphBase> base_;  // has the graph, if there is one
  CUgraph graph_ = nullptr;          // else
  const std::shared_ptr<Made> made_;
  Launched launched_;
  CUresult refused_ = CUDA_SUCCESS;
  bool for_kernels_ = false;
  GraphPlaces places_;
  std::vector<CUdeviceptr> leaves_, frees_;
  std::vector<std::shared_ptr<GraphBase>> updated_with_;  // whose memory it uses
};

}  // namespace fargpu::server
