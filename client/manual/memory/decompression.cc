// Decompression by the GPU's engine. The driver of the server answers, also where no GPU has one.
#include <vector>

#include "client/manual/common.h"
#include "client/transfer/exposure.h"

namespace fargpu::client {

CUresult manual_cuMemBatchDecompressAsync(CUmemDecompressParams* paramsArray, size_t count,
                                          unsigned int flags, size_t* errorIndex, CUstream stream) {
  const CallTarget target = CallTarget::of(stream);
  // Nothing is read of the application's where nothing can be done.
  const Device* const device = target.session.device(current_context()->device);
  if (device->attribute(CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK) == 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (paramsArray == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  // A copy, since managed memory must not be read while a message is built.
  std::vector<CUmemDecompressParams> params(paramsArray, paramsArray + count);
  for (const CUmemDecompressParams& each : params) {
    const auto address = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
    const CUresult result = expose_operands(
        target.session, {address(each.src), address(each.dst), address(each.dstActBytes)});
    if (result != CUDA_SUCCESS) return result;
  }
  return call_cuMemBatchDecompressAsync(target.session, target.context, params.data(), count, flags,
                                        errorIndex, stream);
}

}  // namespace fargpu::client
