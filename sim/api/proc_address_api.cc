// Finding entry points by name and version.
#include <algorithm>
#include <span>
#include <string_view>

#include "sim/api/driver_version.h"
#include "sim/api/proc_table.h"
#include "sim/base/program_report.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

// For std::equal_range; that of std::ranges does not compile with clang 14 and libstdc++ 12.
struct ByName {
  bool operator()(const ProcEntry& entry, std::string_view name) const { return entry.name < name; }
  bool operator()(std::string_view name, const ProcEntry& entry) const { return name < entry.name; }
};

CUdriverProcAddressQueryResult find(std::string_view name, int version, bool per_thread,
                                    void** address) {
  const auto table = proc_table();
  const auto [begin, end] = std::equal_range(table.begin(), table.end(), name, ByName());
  const std::span rows(begin, end);
  const int newest = driver_version();
  if (std::ranges::none_of(rows, [&](const ProcEntry& row) { return row.version <= newest; }))
    return CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const bool has_per_thread = std::ranges::any_of(rows, &ProcEntry::per_thread);
  for (const ProcEntry& entry : rows) {
    if (entry.per_thread == (per_thread && has_per_thread) && entry.version <= version)
      *address = entry.address;
  }
  return *address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                             : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
}

}  // namespace

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion,
                                     cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* symbolStatus) {
  constexpr cuuint64_t kFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || pfn == nullptr || (flags & ~kFlags) != 0 || flags == kFlags)
    return CUDA_ERROR_INVALID_VALUE;
  *pfn = nullptr;
  if (cudaVersion > driver_version()) return CUDA_ERROR_INVALID_VALUE;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const auto status = find(symbol, cudaVersion, per_thread, pfn);
  if (symbolStatus != nullptr) *symbolStatus = status;
  return CUDA_SUCCESS;
}

// The form of CUDA 11.3 has no status: not finding something is an error.
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                                  cuuint64_t flags) {
  const CUresult result = cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
  return result == CUDA_SUCCESS && *pfn == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}

// The tables that NVIDIA's runtime library asks for are answered by the client library, not by a
// driver simulation.
CUresult CUDAAPI cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  return CUDA_ERROR_INVALID_VALUE;  // as for every table that a driver does not know
}

// A shared library of an older driver has its own.
[[gnu::weak]] int fargpu::sim::driver_version() { return CUDA_VERSION; }

int fargpu::sim::refuse(const char* name, std::atomic<bool>* logged) {
  if (!logged->exchange(true))
    report_to_program(std::string(name) + " is not simulated: CUDA_ERROR_NOT_SUPPORTED");
  return CUDA_ERROR_NOT_SUPPORTED;
}
