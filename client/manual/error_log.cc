// The error log: the errors of this process, which the client's entries return. Flags are reserved;
// drivers do not look at them.
#include "client/call/error_log.h"

#include "client/manual/common.h"

namespace fargpu::client {

CUresult manual_cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                       CUlogsCallbackHandle* callback_out) {
  if (callbackFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  error_log::add_callback(callbackFunc, userData, callback_out);
  return CUDA_SUCCESS;
}

CUresult manual_cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return error_log::remove_callback(callback) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult manual_cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  (void)flags;
  if (iterator_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = error_log::current();
  return CUDA_SUCCESS;
}

CUresult manual_cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile,
                                 unsigned int flags) {
  (void)flags;
  return pathToFile == nullptr ? CUDA_ERROR_INVALID_VALUE
                               : error_log::dump_to_file(iterator, pathToFile);
}

CUresult manual_cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size,
                                   unsigned int flags) {
  (void)flags;
  return buffer == nullptr || size == nullptr ? CUDA_ERROR_INVALID_VALUE
                                              : error_log::dump_to_memory(iterator, buffer, size);
}

}  // namespace fargpu::client
