// Attributes of kernel nodes.
#include "sim/graph/api.h"
#include "sim/graph/kernel_node.h"

using namespace fargpu::sim;

namespace {

// body(Node&, const KernelOperation&)
template <typename Body>
CUresult with_kernel(CUgraphNode handle, Body&& body) {
  return with_node(handle, [&](Node& node) -> CUresult {
    if (node.operation->type() != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
    const OperationPtr held = node.operation;
    return body(node, static_cast<const KernelOperation&>(*held));
  });
}

}  // namespace

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                               CUkernelNodeAttrValue* value_out) {
  return with_kernel(hNode, [&](Node&, const KernelOperation& kernel) -> CUresult {
    if (value_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return kernel.attribute(static_cast<int>(attr), value_out);
  });
}

CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                               const CUkernelNodeAttrValue* value) {
  return with_kernel(hNode, [&](Node& node, const KernelOperation& kernel) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = kernel.with_attribute(static_cast<int>(attr), *value, &node.operation);
    if (result == CUDA_SUCCESS) tell_device_node(*node.operation, attr, value);
    return result;
  });
}

CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  return with_kernel(dst, [&](Node& node, const KernelOperation& kernel) -> CUresult {
    const auto from = find_node(src);
    if (!from || from->operation->type() != CU_GRAPH_NODE_TYPE_KERNEL)
      return CUDA_ERROR_INVALID_VALUE;
    const auto& source = static_cast<const KernelOperation&>(*from->operation);
    if (source.device_node() != nullptr || kernel.device_node() != nullptr)
      return CUDA_ERROR_NOT_SUPPORTED;
    if (source.context() != kernel.context()) return CUDA_ERROR_INVALID_CONTEXT;
    return kernel.with_attributes(source.attributes(), &node.operation);
  });
}
