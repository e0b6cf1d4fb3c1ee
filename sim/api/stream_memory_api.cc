// Waiting for and writing values in memory, in stream order.
#include <span>
#include <vector>

#include "sim/context/capture.h"
#include "sim/object/api.h"
#include "sim/work/memory_operation.h"

using namespace fargpu::sim;

namespace {

CUresult submit(CUstream handle, std::span<const CUstreamBatchMemOpParams> params,
                std::vector<MemoryOperation> operations) {
  return with_stream(
      handle, [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
        const auto captured = capture_node(
            context, stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [&](CUgraphNodeParams& node) {
              node.memOp = {context.handle(), static_cast<unsigned>(params.size()),
                            const_cast<CUstreamBatchMemOpParams*>(params.data()), 0};
            });
        if (captured) return *captured;
        if (CUresult result = check_operations(operations); result != CUDA_SUCCESS) return result;
        context.submit_to_device(
            stream,
            [owner = context.shared_from_this(), operations = std::move(operations)] {
              run_operations(*owner, operations);
            },
            /*bytes=*/0, ChannelKind::kNone);
        return CUDA_SUCCESS;
      });
}

CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags,
                    bool wide) {
  MemoryOperation operation;
  const CUresult result = make_wait(address, value, flags, wide, &operation);
  CUstreamBatchMemOpParams params{};
  params.waitValue.operation =
      wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
  params.waitValue.address = address;
  params.waitValue.value64 = value;
  params.waitValue.flags = flags;
  return result == CUDA_SUCCESS ? submit(stream, {&params, 1}, {operation}) : result;
}

CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags,
                     bool wide) {
  MemoryOperation operation;
  const CUresult result = make_write(address, value, flags, wide, &operation);
  CUstreamBatchMemOpParams params{};
  params.writeValue.operation =
      wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
  params.writeValue.address = address;
  params.writeValue.value64 = value;
  params.writeValue.flags = flags;
  return result == CUDA_SUCCESS ? submit(stream, {&params, 1}, {operation}) : result;
}

}  // namespace

CUresult CUDAAPI cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                        unsigned int flags) {
  return wait_value(stream, addr, value, flags, false);
}
CUresult CUDAAPI cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                        unsigned int flags) {
  return wait_value(stream, addr, value, flags, true);
}
CUresult CUDAAPI cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                         unsigned int flags) {
  return write_value(stream, addr, value, flags, false);
}
CUresult CUDAAPI cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                         unsigned int flags) {
  return write_value(stream, addr, value, flags, true);
}

CUresult CUDAAPI cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                       CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return guarded([&]() -> CUresult {
    std::vector<MemoryOperation> operations;
    const CUresult result = make_operations(paramArray, count, flags, &operations);
    return result == CUDA_SUCCESS ? submit(stream, {paramArray, count}, std::move(operations))
                                  : result;
  });
}
