// The operation of a graph node. Immutable, so that launches under way keep their operation: a
// change of parameters makes a new operation.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "sim/base/completion.h"
#include "sim/driver/graph_memory.h"

namespace fargpu::sim {

struct Graph;

class Operation {
 public:
  explicit Operation(CUgraphNodeType type) : type_(type) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  CUgraphNodeType type() const { return type_; }
  // The given parameters, with CUDA's outputs. Pointed-to memory lives as long as the operation.
  virtual void params(CUgraphNodeParams* out) const = 0;
  // The node's work in one launch: called when the launch gets its place in the stream, in an order
  // in which the nodes could run (Context::Make). `done` completes after the returned work. The
  // operation outlives the work.
  virtual std::function<void()> prepare(const Fence& done) const = 0;
  // Whether an executable graph may take `next`, of the same type, in the place of this one.
  virtual CUgraphExecUpdateResult accepts(const Operation& next) const;
  // Whether the node alone may be set to `next`, of the same type, in an executable graph.
  virtual bool may_be_set_to(const Operation& next) const;
  // Of a child graph node or a conditional node.
  virtual std::span<const std::shared_ptr<Graph>> bodies() const { return {}; }
  // The same operation over copies of the bodies.
  virtual std::shared_ptr<const Operation> with_bodies(
      const std::vector<std::shared_ptr<Graph>>& bodies) const;
  // The memory of an allocation or a free node.
  virtual std::shared_ptr<GraphBlock> block() const { return nullptr; }
  // Where the memory lies that a copy or a fill uses.
  virtual std::vector<uint64_t> addresses() const { return {}; }
  // Whether it has one place in a queue together with an operation before it that does so, too.
  virtual bool joins_chains() const { return type_ == CU_GRAPH_NODE_TYPE_KERNEL; }
  // Whether a launch returns when this has been done.
  virtual bool launch_waits() const { return false; }
  // Whose work it is; null: that of the stream it is launched in.
  virtual class Context* own_context() const { return nullptr; }

 private:
  const CUgraphNodeType type_;
};

using OperationPtr = std::shared_ptr<const Operation>;

// For `graph`. CUDA's outputs in the parameters are filled in. Same results as cuGraphAddNode.
CUresult make_operation(CUgraphNodeParams& params, Graph& graph, OperationPtr* operation);

// The context of a node: that of the handle, or the current one.
CUresult node_context(CUcontext handle, std::shared_ptr<class Context>* context);

CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS_v3& params, OperationPtr* operation);
CUresult make_memcpy(const CUDA_MEMCPY_NODE_PARAMS& params, OperationPtr* operation);
CUresult make_memset(const CUDA_MEMSET_NODE_PARAMS_v2& params, OperationPtr* operation);
CUresult make_host(const CUDA_HOST_NODE_PARAMS_v2& params, OperationPtr* operation);
CUresult make_event_record(CUevent event, OperationPtr* operation);
CUresult make_event_wait(CUevent event, OperationPtr* operation);
CUresult make_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& params, OperationPtr* operation);
CUresult make_alloc(CUDA_MEM_ALLOC_NODE_PARAMS_v2& params, Graph& graph, OperationPtr* operation);
CUresult make_free(CUdeviceptr address, Graph& graph, OperationPtr* operation);
CUresult make_child(CUDA_CHILD_GRAPH_NODE_PARAMS& params, Graph& graph, OperationPtr* operation);
CUresult make_conditional(CUDA_CONDITIONAL_NODE_PARAMS& params, Graph& graph,
                          OperationPtr* operation);
OperationPtr make_empty();

}  // namespace fargpu::sim
