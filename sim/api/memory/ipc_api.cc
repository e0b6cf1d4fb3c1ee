// Handles of memory and events for other processes.
#include <mutex>

#include "sim/context/event.h"
#include "sim/driver/interprocess.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  return with_context([&](Context&) -> CUresult {
    const auto found = Driver::get().allocations().find(dptr);
    const bool exportable = found && found->kind == Allocation::Kind::kDevice && found->pool == 0 &&
                            !found->graph && !found->opened;
    if (pHandle == nullptr || !exportable) return CUDA_ERROR_INVALID_VALUE;
    return Driver::get().interprocess().export_memory(*found, pHandle);
  });
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle,
                                       unsigned int Flags) {
  return with_context([&](Context& context) -> CUresult {
    if (pdptr == nullptr || (Flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == 0)
      return CUDA_ERROR_INVALID_VALUE;
    return Driver::get().interprocess().open_memory(owned_by(context), handle, pdptr);
  });
}

// The first version opens memory once: of two threads one has it.
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const CUresult result = cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
  if (result != CUDA_SUCCESS || Driver::get().interprocess().times_open(*pdptr) == 1) return result;
  (void)cuIpcCloseMemHandle(*pdptr);
  return CUDA_ERROR_ALREADY_MAPPED;
}

// Waits first, so that nothing is still using it.
CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr dptr) {
  return with_context([&](Context& context) -> CUresult {
    const auto found = Driver::get().allocations().find(dptr);
    if (!found || found->base != dptr || !found->opened) return CUDA_ERROR_INVALID_VALUE;
    quiesce(context, *found);
    return Driver::get().interprocess().close_memory(dptr);
  });
}

CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  return with_context([&](Context&) -> CUresult {
    const auto found = Driver::get().registry().find<Event>(event);
    if (pHandle == nullptr || event == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    if (!found->shared || found->opened) {
      *pHandle = {};
      return CUDA_ERROR_INVALID_HANDLE;
    }
    return Interprocess::export_event(*found->shared, pHandle);
  });
}

CUresult CUDAAPI cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  return with_context([&](Context& context) -> CUresult {
    if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    auto shared = Interprocess::open_event(handle, &result);
    if (!shared) return result;
    auto event = std::make_shared<Event>(context.weak_from_this(),
                                         CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    event->shared = std::make_shared<SharedEvent>(std::move(*shared));
    event->opened = true;
    *phEvent = to_handle<CUevent>(Driver::get().registry().add(std::move(event), context.id()));
    return CUDA_SUCCESS;
  });
}
