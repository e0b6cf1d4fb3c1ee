// Waiting for and writing values in memory, in stream order.
#include <vector>

#include "sim/driver/api.h"
#include "sim/driver/memory_operation.h"

using namespace fargpu::sim;

namespace {

CUresult submit(CUstream handle, std::vector<MemoryOperation> operations) {
  return with_stream(
      handle, [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
        if (CUresult result = check_operations(operations); result != CUDA_SUCCESS) return result;
        context.submit(stream,
                       [owner = context.shared_from_this(), operations = std::move(operations)] {
                         run_operations(*owner, operations);
                       });
        return CUDA_SUCCESS;
      });
}

CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags,
                    bool wide) {
  MemoryOperation operation;
  const CUresult result = make_wait(address, value, flags, wide, &operation);
  return result == CUDA_SUCCESS ? submit(stream, {operation}) : result;
}

CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags,
                     bool wide) {
  MemoryOperation operation;
  const CUresult result = make_write(address, value, flags, wide, &operation);
  return result == CUDA_SUCCESS ? submit(stream, {operation}) : result;
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
    return result == CUDA_SUCCESS ? submit(stream, std::move(operations)) : result;
  });
}
