// NodeParams: the parameters of a graph node, as given by the application, with all memory that
// they point to. A value: copies share nothing. Checks that need no driver are made at the
// creation.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/object/context.h"

namespace fargpu::client {

struct Function;
struct LaunchShape;

// Nothing is in the places that a driver keeps for later.
bool is_known(const CUgraphNodeParams& params);
// Of a kernel's node: the id of the function or kernel.
uint64_t function_of(const CUDA_KERNEL_NODE_PARAMS_v3& kernel);
LaunchShape shape_of(const CUDA_KERNEL_NODE_PARAMS_v3& kernel);
// Its context, as a driver takes it: a function's own, else that which is named or current.
CUresult context_of(const CUDA_KERNEL_NODE_PARAMS_v3& kernel, Context** context);
// Its function in that context, which is current, after the checks of a launch. May ask the server.
CUresult check_kernel(const CUDA_KERNEL_NODE_PARAMS_v3& kernel, const Context& context,
                      Function** function);

class NodeParams {
 public:
  NodeParams() = default;
  NodeParams(const NodeParams& other) { *this = other; }
  NodeParams& operator=(const NodeParams& other);
  NodeParams(NodeParams&& other) noexcept = default;
  NodeParams& operator=(NodeParams&& other) noexcept = default;

  // From the application's parameters. CUDA_ERROR_NOT_SUPPORTED for kinds that are not forwarded. A
  // child graph is for the caller to look at. May ask the server about a kernel.
  static CUresult take(const CUgraphNodeParams& given, NodeParams* params);

  CUgraphNodeType type() const { return given_.type; }
  // For the application; its pointers are valid as long as this is, and through become().
  const CUgraphNodeParams& get() const { return given_; }
  // Takes other parameters. If the layout of a kernel's parameters is unchanged, the application's
  // pointers to them stay valid, as natively: programs keep the list that they have read.
  void become(NodeParams next);
  // nullptr: it needs none. The context may have ended.
  Context* context() const { return context_; }
  bool context_has_ended() const;

  // Kernels.
  uint64_t function() const;  // id of a function or a kernel
  const std::vector<std::byte>& packed() const { return packed_; }
  const std::vector<CUlaunchAttribute>& attributes() const { return attributes_; }
  CUresult get_attribute(CUlaunchAttributeID id, CUlaunchAttributeValue* value) const;
  CUresult set_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue& value);
  // Also the handle below.
  void copy_attributes(const NodeParams& other) {
    attributes_ = other.attributes_;
    captured_ = other.captured_;
    device_node_ = other.device_node_;
    updatable_ = other.updatable_;
  }
  // Made by a launch in a captured stream, whose attributes read otherwise.
  void set_captured() { captured_ = true; }
  // Of a node that kernels update: the driver's handle, and its number in the graph's half at the
  // server. 0: they do not.
  uint64_t device_node() const { return device_node_; }
  unsigned updatable() const { return updatable_; }
  void set_device_node(uint64_t device_node, unsigned number) {
    device_node_ = device_node;
    updatable_ = number;
  }
  // The graphs that a child or a conditional node owns.
  void set_child(CUgraph graph) { given_.graph.graph = graph; }
  void set_bodies(std::vector<CUgraph> bodies);
  // Of an allocation, as the server has said.
  void set_allocation(CUdeviceptr address, unsigned number);
  unsigned allocation() const { return allocation_; }

 private:
  CUresult take_kernel();
  CUresult take_copy();
  CUresult take_fill();
  CUresult take_operations();
  CUresult take_allocation();
  CUresult take_condition();
  CUresult enter(CUcontext context);
  bool can_have(CUlaunchAttributeID id) const;
  void point();  // the pointers of given_ lead into this object again

  CUgraphNodeParams given_{};
  Context* context_ = nullptr;
  uint32_t epoch_ = 0;  // of the context when this was made
  // Kernels: packed parameters, where each begins; or, given as one buffer, that and its size.
  std::vector<std::byte> packed_;
  std::vector<uint32_t> offsets_;
  std::vector<void*> each_;
  std::vector<size_t> buffer_size_;  // empty: given one by one
  std::vector<void*> extra_;
  std::vector<CUlaunchAttribute> attributes_;
  bool captured_ = false;
  std::vector<CUstreamBatchMemOpParams> operations_;
  std::vector<CUmemAccessDesc> access_;
  unsigned allocation_ = 0;  // its number in the graph's half at the server
  std::vector<CUgraph> bodies_;
  uint64_t device_node_ = 0;
  unsigned updatable_ = 0;
};

}  // namespace fargpu::client
