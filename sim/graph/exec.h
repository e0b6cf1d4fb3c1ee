// Executable graphs. An executable graph is a copy of a graph without handles; calls find a node in
// it by the handle of the node that it was copied from.
//
// Launches of one executable graph never overlap: each waits for the previous launch. A launch
// takes a place in the queue of its stream, and returns at its end where a driver's does.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "sim/context/context.h"
#include "sim/graph/graph.h"
#include "sim/graph/plan.h"

namespace fargpu::sim {

class Exec : public std::enable_shared_from_this<Exec> {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kGraphExec;

  Exec(std::shared_ptr<Graph> shape, std::shared_ptr<const Plan> plan, uint64_t flags);

  uint64_t flags() const { return flags_; }
  uint64_t handle() const { return handle_; }
  void set_handle(uint64_t handle) { handle_ = handle; }  // once

  // --- for kernels that launch it; from any thread
  bool for_device() const { return (flags_ & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0; }
  // As it was uploaded or launched by the host last; nullptr: never.
  std::shared_ptr<const Plan> on_device() const;
  // A launch begins, or has ended, with everything but its tails. False: it runs already.
  bool begin() { return !runs_.exchange(true); }
  void end() { runs_ = false; }

  // --- guarded by the mutex of all graphs
  // nullptr: the node is of another graph.
  Node* find(uint64_t original) const;
  // Later launches do `operation` at the node. Same results as cuGraphExecNodeSetParams.
  CUresult set(Node& node, OperationPtr operation);
  void set_enabled(Node& node, bool enabled);
  // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: see `info`. Its nodes are nodes of `graph`.
  CUresult update(const Graph& graph, CUgraphExecUpdateResultInfo* info);
  CUresult update_child(Node& node, const Graph& child);

  // CUDA_ERROR_INVALID_VALUE: memory of an earlier launch was not freed, or memory that it frees is
  // not allocated.
  CUresult launch(Context& context, const std::shared_ptr<Stream>& stream);
  // Waits for the end of the launches up to now.
  void wait_for_launch();
  // Waits in the stream for earlier launches.
  void upload(Context& context, const std::shared_ptr<Stream>& stream);

 private:
  struct Run;
  struct Memory;
  static size_t places_of(const Plan& plan);
  static GraphFunctions functions_of(const Plan& plan);
  // `awaited`: a call waits for it before it returns.
  CUresult submit_launch(Context& context, const std::shared_ptr<Stream>& stream, Fence* awaited);
  void index(const Graph& graph);
  void changed();
  void plan_again();
  std::unique_lock<std::mutex> lock_with_plan();
  void put_on_device(std::shared_ptr<const Plan> plan);
  CUresult take_memory(const Plan& plan, Memory* memory);
  std::shared_ptr<Run> prepare(std::shared_ptr<const Plan> plan, Memory memory);
  // The work in the stream; the lanes have their tasks.
  std::function<void()> start(const std::shared_ptr<Run>& run);

  const std::shared_ptr<Graph> shape_;
  const uint64_t flags_;
  std::unordered_map<uint64_t, Node*> nodes_;  // by the handle of the original

  std::mutex mutex_;                               // orders launches; guards the members below
  std::shared_ptr<const Plan> plan_;               // nullptr: to be made again by the next launch
  std::vector<std::shared_ptr<TaskQueue>> lanes_;  // of lane 1 and so on
  std::vector<ChannelPointer> side_channels_;      // the same
  Fence last_;

  uint64_t handle_ = 0;
  std::atomic<bool> runs_{false};
  mutable std::mutex device_mutex_;
  std::shared_ptr<const Plan> on_device_;  // guarded by device_mutex_
};

}  // namespace fargpu::sim
