// How libraries find functions: cuGetProcAddress by name and version, cuGetExportTable by UUID.
#include <fmt/ranges.h>

#include "client/interop/export_tables.h"
#include "client/manual/common.h"
#include "client/process/process.h"
#include "common/base/log.h"
#include "generated/client/proc_table.h"

namespace fargpu::client {
namespace {

// The version that lookups are judged by. Never connects: a library may look around in a process
// that uses no GPU.
int known_driver_version() {
  return Process::get().tables() == nullptr ? CUDA_VERSION : Process::get().driver_version();
}

CUresult look_up(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                 ProcStatus* status) {
  constexpr cuuint64_t kKnownFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  *status = ProcStatus::kSymbolNotFound;
  if (pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pfn = nullptr;
  if (symbol == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (cudaVersion > known_driver_version()) return CUDA_ERROR_INVALID_VALUE;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  ProcAnswer answer = find_proc(symbol, cudaVersion, per_thread);
  // The server's driver does not know a function that is newer than itself.
  if (answer.status == ProcStatus::kVersionNotSufficient &&
      find_proc(symbol, known_driver_version(), per_thread).status != ProcStatus::kFound)
    answer.status = ProcStatus::kSymbolNotFound;
  *status = answer.status;
  *pfn = answer.address;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                                 cuuint64_t flags) {
  ProcStatus status;
  const CUresult result = look_up(symbol, pfn, cudaVersion, flags, &status);
  if (result != CUDA_SUCCESS) return result;
  return status == ProcStatus::kFound ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult manual_cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion,
                                    cuuint64_t flags,
                                    CUdriverProcAddressQueryResult* symbolStatus) {
  ProcStatus status;
  const CUresult result = look_up(symbol, pfn, cudaVersion, flags, &status);
  if (result == CUDA_SUCCESS && symbolStatus != nullptr) {
    *symbolStatus = status == ProcStatus::kFound ? CU_GET_PROC_ADDRESS_SUCCESS
                    : status == ProcStatus::kVersionNotSufficient
                        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return result;
}

CUresult manual_cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = interop::export_table(*pExportTableId);
  if (*ppExportTable != nullptr) return CUDA_SUCCESS;
  const auto* id = reinterpret_cast<const unsigned char*>(pExportTableId->bytes);
  log::debug("export table {:02x} is refused",
             fmt::join(id, id + sizeof pExportTableId->bytes, ""));
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace fargpu::client
