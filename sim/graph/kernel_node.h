// The operation of a kernel node, whose attributes can be asked for and changed.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "sim/context/context.h"
#include "sim/graph/device_node.h"
#include "sim/graph/operation.h"
#include "sim/work/kernel_work.h"

namespace fargpu::sim {

using KernelAttributes = std::map<int, CUlaunchAttributeValue>;

// The parameters of a node as a program reads them. Lists that it keeps stay valid while the node's
// parameters are laid out alike, as a driver's do.
class ToldParameters {
 public:
  void take(const std::vector<std::byte>& block, const std::vector<uint32_t>& offsets,
            bool as_extra);
  void give(CUDA_KERNEL_NODE_PARAMS_v3* out);

 private:
  std::vector<std::byte> block_;
  std::vector<void*> pointers_;
  size_t bytes_ = 0;
  bool as_block_ = false;
};

class KernelOperation final : public Operation {
 public:
  // `as_extra`: the parameters were given as one block. `device_node`: null: kernels do not update
  // it.
  KernelOperation(std::shared_ptr<Context> context, KernelWork work, bool as_extra,
                  KernelAttributes attributes, std::shared_ptr<DeviceNode> device_node = nullptr);
  void params(CUgraphNodeParams* out) const override;  // without the parameters of the kernel
  void tell(ToldParameters& told) const;
  std::function<void()> prepare(const Fence& done) const override;
  CUgraphExecUpdateResult accepts(const Operation& next) const override;

  const std::shared_ptr<Context>& context() const { return context_; }
  Context* own_context() const override { return context_.get(); }
  const KernelWork& work() const { return work_; }
  const std::shared_ptr<DeviceNode>& device_node() const { return device_node_; }
  const KernelAttributes& attributes() const { return attributes_; }
  // CUDA_ERROR_INVALID_VALUE: not an attribute of kernel nodes, or a wrong value.
  CUresult attribute(int id, CUlaunchAttributeValue* value) const;
  CUresult with_attribute(int id, const CUlaunchAttributeValue& value, OperationPtr* out) const;
  CUresult with_attributes(const KernelAttributes& attributes, OperationPtr* out) const;
  // Of another node that it takes the place of.
  CUresult with_settings_of(const KernelOperation& other, OperationPtr* out) const;

 private:
  bool has_preferred_clusters() const;

  const std::shared_ptr<Context> context_;
  const KernelWork work_;
  const bool as_extra_;
  const KernelAttributes attributes_;
  const std::shared_ptr<DeviceNode> device_node_;
};

// Of a kernel node that kernels update; nullptr: of all others.
DeviceNode* device_node(const Operation& operation);
// CUDA's output in the attribute that made the node device-updatable.
void tell_device_node(const Operation& operation, CUlaunchAttributeID id,
                      const CUlaunchAttributeValue* value);
// Whether the graph, or a graph inside of it, has such a node.
bool has_device_nodes(const Graph& graph);

}  // namespace fargpu::sim
