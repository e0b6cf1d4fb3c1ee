#include "server/graph/node_params.h"

#include <algorithm>

#include "common/wire/data.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::server {
namespace {

constexpr size_t kMaxOperations = 256;

}  // namespace

void require(bool holds, const char* what) {
  if (holds) return;
  kj::throwFatalException(
      kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__, kj::heapString(what)));
}

GivenKernel kernel_in(schema::graph::Kernel::Reader kernel) {
  return {kernel.getFunction(),
          {kernel.getGridX(), kernel.getGridY(), kernel.getGridZ()},
          {kernel.getBlockX(), kernel.getBlockY(), kernel.getBlockZ()},
          kernel.getSharedBytes(),
          wire::as_bytes(kernel.getParameters())};
}

CUresult KernelParams::take(const GraphParts& parts, CUcontext context, const GivenKernel& kernel) {
  const uint64_t id = kernel.function;
  size_ = kernel.parameters.size();
  require(size_ <= schema::kMaxParameterBytes, "too many bytes of parameters");
  CUresult result = CUDA_SUCCESS;
  if (rpc::handle_kind(id) == rpc::HandleKind::kKernel) {
    result = find(parts, rpc::HandleKind::kKernel, id, &params_.kern);
    params_.ctx = context;
  } else {
    result = find(parts, rpc::HandleKind::kFunction, id, &params_.func);
  }
  const KnownKernel* const layout = parts.parameter_layouts.find(id);
  if (result == CUDA_SUCCESS && layout != nullptr) result = parts.use_local(layout->local_bytes);
  params_.gridDimX = kernel.grid[0];
  params_.gridDimY = kernel.grid[1];
  params_.gridDimZ = kernel.grid[2];
  params_.blockDimX = kernel.block[0];
  params_.blockDimY = kernel.block[1];
  params_.blockDimZ = kernel.block[2];
  params_.sharedMemBytes = kernel.shared_bytes;
  if (size_ == 0) return result;
  if (layout == nullptr) {
    extra_ = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(kernel.parameters.data()),
              CU_LAUNCH_PARAM_BUFFER_SIZE, &size_, CU_LAUNCH_PARAM_END};
    params_.extra = extra_.data();
    return result;
  }
  each_.emplace(layout->offsets.size());
  require(find_parameters(*layout, kernel.parameters, each_->data()),
          "the kernel has more parameters than came");
  params_.kernelParams = each_->data();
  return result;
}

std::vector<CUlaunchAttribute> attributes_of(schema::graph::Kernel::Reader kernel) {
  auto attributes = read_all<CUlaunchAttribute>(kernel.getAttributes(),
                                                schema::kMaxLaunchAttributes, "wrong attributes");
  for (const CUlaunchAttribute& attribute : attributes) {
    require(attribute.id != CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
                attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT &&
                attribute.id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
            "an attribute that no node has");
  }
  return attributes;
}

CUresult read_copy(const GraphParts& parts, capnp::Data::Reader data, CUDA_MEMCPY3D* copy) {
  *copy = read<CUDA_MEMCPY3D>(data, "a copy has the wrong size");
  const auto resolve = [&](CUmemorytype type, const void** host, CUarray* array) {
    // A driver would take an address that it does not know for memory of this process.
    require(type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY,
            "a copy names other memory than the device's");
    *host = nullptr;
    const auto id = reinterpret_cast<uint64_t>(*array);
    *array = nullptr;
    return type == CU_MEMORYTYPE_ARRAY ? find(parts, rpc::HandleKind::kArray, id, array)
                                       : CUDA_SUCCESS;
  };
  copy->reserved0 = copy->reserved1 = nullptr;
  const void* host = nullptr;
  const CUresult result = resolve(copy->srcMemoryType, &copy->srcHost, &copy->srcArray);
  const CUresult other = resolve(copy->dstMemoryType, &host, &copy->dstArray);
  copy->dstHost = nullptr;
  return result == CUDA_SUCCESS ? other : result;
}

OperationParams::OperationParams(schema::graph::Operations::Reader given, CUcontext context)
    : operations(read_all<CUstreamBatchMemOpParams>(given.getOperations(), kMaxOperations,
                                                    "wrong operations")) {
  params.ctx = context;
  params.count = static_cast<unsigned>(operations.size());
  params.paramArray = operations.data();
  params.flags = given.getFlags();
}

bool OperationParams::waits() const {
  return std::any_of(operations.begin(), operations.end(), schema::is_wait);
}

CUresult event_of(const GraphParts& parts, schema::graph::Node::Reader node, CUevent* event) {
  const uint64_t id = node.isRecordEvent() ? node.getRecordEvent() : node.getWaitEvent();
  const CUresult result = find(parts, rpc::HandleKind::kEvent, id, event);
  if (result == CUDA_SUCCESS) parts.event_waits.never_replaced(id);
  return result;
}

}  // namespace fargpu::server
