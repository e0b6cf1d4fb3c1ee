#include "client/program/driver_names.h"

#include <algorithm>

namespace fargpu::scan {
namespace {

const schema::Support* find(std::span<const schema::Support> table, std::string_view name) {
  const auto found =
      std::lower_bound(table.begin(), table.end(), name,
                       [](const schema::Support& a, std::string_view b) { return a.name < b; });
  return found != table.end() && found->name == name ? &*found : nullptr;
}

constexpr RuntimeNeed kRuntime[] = {
    {"cudaDestroyExternalMemory", "cuDestroyExternalMemory"},
    {"cudaDestroyExternalSemaphore", "cuDestroyExternalSemaphore"},
    {"cudaDeviceFlushGPUDirectRDMAWrites", "cuFlushGPUDirectRDMAWrites"},
    {"cudaExternalMemoryGetMappedBuffer", "cuExternalMemoryGetMappedBuffer"},
    {"cudaExternalMemoryGetMappedMipmappedArray", "cuExternalMemoryGetMappedMipmappedArray"},
    {"cudaGLGetDevices", "cuGLGetDevices"},
    {"cudaGraphAddExternalSemaphoresSignalNode", "cuGraphAddExternalSemaphoresSignalNode"},
    {"cudaGraphAddExternalSemaphoresWaitNode", "cuGraphAddExternalSemaphoresWaitNode"},
    {"cudaGraphicsGLRegisterBuffer", "cuGraphicsGLRegisterBuffer"},
    {"cudaGraphicsGLRegisterImage", "cuGraphicsGLRegisterImage"},
    {"cudaGraphicsMapResources", "cuGraphicsMapResources"},
    {"cudaGraphicsResourceGetMappedMipmappedArray", "cuGraphicsResourceGetMappedMipmappedArray"},
    {"cudaGraphicsResourceGetMappedPointer", "cuGraphicsResourceGetMappedPointer"},
    {"cudaGraphicsResourceSetMapFlags", "cuGraphicsResourceSetMapFlags"},
    {"cudaGraphicsSubResourceGetMappedArray", "cuGraphicsSubResourceGetMappedArray"},
    {"cudaGraphicsUnmapResources", "cuGraphicsUnmapResources"},
    {"cudaGraphicsUnregisterResource", "cuGraphicsUnregisterResource"},
    {"cudaImportExternalMemory", "cuImportExternalMemory"},
    {"cudaImportExternalSemaphore", "cuImportExternalSemaphore"},
    {"cudaIpcCloseMemHandle", "cuIpcCloseMemHandle"},
    {"cudaIpcGetEventHandle", "cuIpcGetEventHandle"},
    {"cudaIpcGetMemHandle", "cuIpcGetMemHandle"},
    {"cudaIpcOpenEventHandle", "cuIpcOpenEventHandle"},
    {"cudaIpcOpenMemHandle", "cuIpcOpenMemHandle"},
    {"cudaLibraryGetManaged", "cuLibraryGetManaged"},
    {"cudaLibraryGetUnifiedFunction", "cuLibraryGetUnifiedFunction"},
    {"cudaMallocManaged", "cuMemAllocManaged"},
    {"cudaMemAdvise", "cuMemAdvise"},
    {"cudaMemPoolExportPointer", "cuMemPoolExportPointer"},
    {"cudaMemPoolExportToShareableHandle", "cuMemPoolExportToShareableHandle"},
    {"cudaMemPoolImportFromShareableHandle", "cuMemPoolImportFromShareableHandle"},
    {"cudaMemPoolImportPointer", "cuMemPoolImportPointer"},
    {"cudaMemPrefetchAsync", "cuMemPrefetchAsync"},
    {"cudaMemRangeGetAttribute", "cuMemRangeGetAttribute"},
    {"cudaMemRangeGetAttributes", "cuMemRangeGetAttributes"},
    {"cudaSignalExternalSemaphoresAsync", "cuSignalExternalSemaphoresAsync"},
    {"cudaStreamAttachMemAsync", "cuStreamAttachMemAsync"},
    {"cudaVDPAUGetDevice", "cuVDPAUGetDevice"},
    {"cudaWaitExternalSemaphoresAsync", "cuWaitExternalSemaphoresAsync"},
};

constexpr std::string_view kLookups[] = {
    "dlsym",
    "dlvsym",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cudaGetDriverEntryPoint",
    "cudaGetDriverEntryPointByVersion",
};

// Functions of the runtime library have a second name for per-thread default streams, and new
// versions of old ones.
std::string_view without_suffix(std::string_view name) {
  for (const std::string_view suffix : {"_ptsz", "_ptds"}) {
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  }
  const size_t at = name.rfind("_v");
  const bool versioned = at != std::string_view::npos && at + 2 < name.size() &&
                         name.find_first_not_of("0123456789", at + 2) == std::string_view::npos;
  return versioned ? name.substr(0, at) : name;
}

}  // namespace

const schema::Support* find_symbol(std::string_view symbol) {
  return find(schema::supported_symbols(), symbol);
}
const schema::Support* find_name(std::string_view name) {
  return find(schema::supported_names(), name);
}
size_t names_to_ask_for() { return schema::supported_names().size(); }

std::span<const RuntimeNeed> runtime_needs() { return kRuntime; }

std::string_view needed_by_runtime(std::string_view function) {
  const std::string_view name = without_suffix(function);
  const auto* const found = std::find_if(std::begin(kRuntime), std::end(kRuntime),
                                         [name](const auto& row) { return row.function == name; });
  return found == std::end(kRuntime) ? std::string_view() : found->needs;
}

bool looks_up_names(std::string_view function) {
  return std::find(std::begin(kLookups), std::end(kLookups), without_suffix(function)) !=
             std::end(kLookups) ||
         function == "cuGetProcAddress_v2";
}

}  // namespace fargpu::scan
