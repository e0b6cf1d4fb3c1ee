// Calls in captured streams that launch kernels and host functions, work with events, or
// wait for and write values: what they would send becomes a node.
#include <algorithm>
#include <span>

#include "client/capture/captures.h"
#include "client/graph/typed_params.h"
#include "client/image/launch.h"
#include "client/manual/common.h"
#include "client/manual/stream/stream_priority.h"

namespace fargpu::client {
namespace {

bool is_live(CUevent event) {
  return Process::get().tables()->handles.find(rpc::HandleKind::kEvent,
                                               reinterpret_cast<uint64_t>(event)) != nullptr;
}

// Others cannot have its place in a capture.
bool is_interprocess(CUevent event) {
  const auto* const found = static_cast<const Event*>(Process::get().tables()->handles.find(
      rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(event)));
  return found != nullptr && found->interprocess.load(std::memory_order_relaxed);
}

// An event that a kernel records when it has come to the point from which this edge leads on.
struct RecordedByKernel {
  CUevent event = nullptr;
  CUgraphEdgeData edge{};
};

// False: the attribute is not one of an event.
bool names_event(const CUlaunchAttribute& attribute, RecordedByKernel* recorded) {
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
    const auto& given = attribute.value.programmaticEvent;
    recorded->event = given.event;
    recorded->edge.from_port = given.triggerAtBlockStart != 0
                                   ? CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER
                                   : CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    recorded->edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    return true;
  }
  if (attribute.id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) return false;
  recorded->event = attribute.value.launchCompletionEvent.event;
  recorded->edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
  return true;
}

// What of a launch concerns its stream becomes edges; the rest stays with the node.
CUresult capture_launch(const CUDA_KERNEL_NODE_PARAMS_v3& kernel, CUstream stream,
                        std::span<const CUlaunchAttribute> attributes) {
  CUgraphNodeParams given = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  given.kernel = kernel;
  NodeParams params;
  bool programmatic = false;
  const ContextScope scope(context_of(stream));  // of a kernel that has none of its own
  CUresult result = NodeParams::take(given, &params);
  params.set_captured();
  if (const int priority = priority_of(stream); priority != 0 && result == CUDA_SUCCESS) {
    CUlaunchAttributeValue value{};
    value.priority = priority;
    result = params.set_attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY, value);
  }
  const CUlaunchAttribute* updatable = nullptr;
  std::vector<RecordedByKernel> records;
  for (const CUlaunchAttribute& attribute : attributes) {
    if (result != CUDA_SUCCESS) break;
    RecordedByKernel recorded;
    if (names_event(attribute, &recorded)) {
      // As natively, that does not end the capture.
      const CUresult wrong = check_event_of_launch(attribute, /*is_captured=*/true);
      if (wrong != CUDA_SUCCESS) return wrong;
      records.push_back(recorded);
      continue;
    }
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        if (attribute.value.deviceUpdatableKernelNode.deviceUpdatable == 1)
          updatable = &attribute;
        else
          result = params.set_attribute(attribute.id, attribute.value);
        break;
      default:
        result = params.set_attribute(attribute.id, attribute.value);
    }
  }
  CUgraphNode node = nullptr;
  if (result == CUDA_SUCCESS) result = capture::add(stream, std::move(params), programmatic, &node);
  if (result == CUDA_SUCCESS && updatable != nullptr)
    result = set_kernel_attribute(node, updatable->id, &updatable->value);
  for (const RecordedByKernel& recorded : records) {
    if (result != CUDA_SUCCESS) break;
    result = capture::record_at(recorded.event, stream, {{node}, {recorded.edge}});
  }
  // As natively: another wrong launch ends the capture, other wrong calls do not.
  if (result != CUDA_SUCCESS) capture::invalidate(stream);
  return result;
}

CUresult capture_operations(CUstream stream, std::span<CUstreamBatchMemOpParams> operations,
                            unsigned flags) {
  Context* const context = context_of(stream);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return capture::add(stream,
                      operation_params({context->handle(), static_cast<unsigned>(operations.size()),
                                        operations.data(), flags}));
}

// The value is of `bytes` bytes.
CUresult capture_write(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags,
                       size_t bytes) {
  if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER || address % bytes != 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = bytes == sizeof(cuuint32_t) ? CU_STREAM_MEM_OP_WRITE_VALUE_32
                                                               : CU_STREAM_MEM_OP_WRITE_VALUE_64;
  operation.writeValue.address = address;
  operation.writeValue.value64 = value;
  operation.writeValue.flags = flags;
  return capture_operations(stream, {&operation, 1}, 0);
}

CUresult capture_wait(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags,
                      size_t bytes) {
  constexpr unsigned kFlags = CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH;
  if ((flags & ~kFlags) != 0 || address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation =
      bytes == sizeof(cuuint32_t) ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WAIT_VALUE_64;
  operation.waitValue.address = address;
  operation.waitValue.value64 = value;
  operation.waitValue.flags = flags;
  return capture_operations(stream, {&operation, 1}, 0);
}

CUDA_KERNEL_NODE_PARAMS_v3 kernel_of(CUfunction f, const LaunchShape& shape, void** parameters,
                                     void** extra) {
  CUDA_KERNEL_NODE_PARAMS_v3 kernel{};
  kernel.func = f;
  kernel.gridDimX = shape.grid[0];
  kernel.gridDimY = shape.grid[1];
  kernel.gridDimZ = shape.grid[2];
  kernel.blockDimX = shape.block[0];
  kernel.blockDimY = shape.block[1];
  kernel.blockDimZ = shape.block[2];
  kernel.sharedMemBytes = shape.shared_bytes;
  kernel.kernelParams = parameters;
  kernel.extra = extra;
  return kernel;
}

}  // namespace

CUresult captured_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                 unsigned int gridDimZ, unsigned int blockDimX,
                                 unsigned int blockDimY, unsigned int blockDimZ,
                                 unsigned int sharedMemBytes, CUstream hStream, void** kernelParams,
                                 void** extra) {
  const LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  return capture_launch(kernel_of(f, shape, kernelParams, extra), hStream, {});
}

CUresult captured_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX,
                                            unsigned int gridDimY, unsigned int gridDimZ,
                                            unsigned int blockDimX, unsigned int blockDimY,
                                            unsigned int blockDimZ, unsigned int sharedMemBytes,
                                            CUstream hStream, void** kernelParams) {
  const LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  CUlaunchAttribute cooperative{};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  return capture_launch(kernel_of(f, shape, kernelParams, nullptr), hStream, {&cooperative, 1});
}

CUresult captured_cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                                   void** extra) {
  if (config->numAttrs != 0 && config->attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ},
                          config->sharedMemBytes};
  return capture_launch(kernel_of(f, shape, kernelParams, extra), config->hStream,
                        {config->attrs, config->numAttrs});
}

CUresult captured_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return capture::add(hStream, host_params({fn, userData}));
}

CUresult captured_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (!is_live(hEvent)) return CUDA_ERROR_INVALID_HANDLE;
  if (flags == CU_EVENT_RECORD_DEFAULT && is_interprocess(hEvent))
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return flags == CU_EVENT_RECORD_EXTERNAL ? capture::add(hStream, record_params(hEvent))
                                           : capture::record(hEvent, hStream);
}

CUresult captured_cuEventRecord(CUevent hEvent, CUstream hStream) {
  return captured_cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

CUresult captured_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  if (Flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (!is_live(hEvent)) return CUDA_ERROR_INVALID_HANDLE;
  if (Flags == CU_EVENT_WAIT_DEFAULT) return capture::wait(hStream, hEvent);
  // A place in a capture that has ended is a wrong event here, too.
  if (capture::check_event(hEvent, false) == CUDA_ERROR_INVALID_VALUE) {
    capture::invalidate(hStream);
    return CUDA_ERROR_INVALID_VALUE;
  }
  return capture::add(hStream, wait_params(hEvent));
}

CUresult captured_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                          unsigned int flags) {
  return capture_write(stream, addr, value, flags, sizeof value);
}

CUresult captured_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                          unsigned int flags) {
  return capture_write(stream, addr, value, flags, sizeof value);
}

CUresult captured_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                         unsigned int flags) {
  return capture_wait(stream, addr, value, flags, sizeof value);
}

CUresult captured_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                         unsigned int flags) {
  return capture_wait(stream, addr, value, flags, sizeof value);
}

CUresult captured_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                        CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return capture_operations(stream, {paramArray, count}, flags);
}

}  // namespace fargpu::client
