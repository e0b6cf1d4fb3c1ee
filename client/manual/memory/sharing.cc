// Memory that processes of one job give each other. What the program passes on is an export handle
// of the server's; the memory itself goes from worker to worker.
#include "client/manual/memory/sharing.h"

#include <thread>

#include "client/manual/apart.h"
#include "client/manual/memory/handle_file.h"
#include "client/memory/memory_source.h"
#include "client/memory/reserve.h"
#include "client/process/process.h"
#include "client/servers/cross_server_work.h"
#include "common/base/log.h"
#include "generated/client/wire/internal.h"

namespace fargpu::client {
namespace {

// Memory of another process is open once more. Returns how often it is open then.
unsigned enter_opened(Session& session, Region opened) {
  unsigned times = 0;
  const auto again = [&] {
    session.device_memory.change(opened.base, [&](Region& region) {
      if (region.session == &session && region.opened != 0) times = ++region.opened;
    });
    return times != 0;
  };
  if (again()) return times;
  opened.opened = 1;
  opened.buffer_id = session.next_buffer_id();
  opened.reserved = reserve_addresses(opened.base, opened.bytes);
  // Another thread may be about to take it out, or has entered it.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    if (session.device_memory.insert(opened)) return opened.opened;
    if (again()) break;
    std::this_thread::yield();
  }
  if (opened.reserved) release_reserved(opened.base, opened.bytes);
  return times;
}

// Memory that is open once less; `is_last`: it has left the table.
struct Taken {
  std::optional<Region> region;  // empty: it was not open
  bool is_last = false;
};

// The memory at `pointer` is about to be closed. It leaves the table before the driver has closed
// it, because the driver may give its addresses out again at once.
Taken take_opened(Session& session, CUdeviceptr pointer) {
  Taken taken;
  session.device_memory.change(pointer, [&](Region& region) {
    if (region.session != &session || region.opened == 0) return;
    taken = {region, region.opened == 1};
    --region.opened;
  });
  if (taken.is_last) session.device_memory.erase(taken.region->base);
  return taken;
}

}  // namespace

CUresult sharing(Session& session, const std::function<CUresult()>& share) {
  Observers::Coming coming(session.observers, Observers::kOtherProcesses);
  const CUresult result = share();
  if (result == CUDA_SUCCESS) coming.stays();
  return result;
}

CUresult refuse_hidden_device(const char* name) {
  log::error("{}: the memory lies on a GPU that CUDA_VISIBLE_DEVICES hides from this process",
             name);
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult give_handle_file(const char* name, const ExportHandleBytes& export_handle, bool inherited,
                          int* descriptor) {
  auto file = make_handle_file(export_handle, inherited);
  if (!file.ok()) {
    log::error("{}: {}", name, file.status().message());
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *descriptor = file->release();
  return CUDA_SUCCESS;
}

CUresult at_its_server(const char* name,
                       const std::function<CUresult(Session&, uint16_t)>& import) {
  const CallTarget current = CallTarget::of_current();
  CUresult result = import(current.session, current.context);
  Process::get().for_each_session([&](Session& session) {
    if (result == CUDA_ERROR_NOT_PERMITTED && &session != &current.session)
      result = import(session, 0);
  });
  if (result == CUDA_ERROR_NOT_PERMITTED) {
    log::error(
        "{}: refused: what was exported belongs to another job or to another server; only "
        "processes of one fargpu run share GPU memory",
        name);
  }
  return result;
}

CUresult manual_cuMemExportToShareableHandle(void* shareableHandle,
                                             CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType handleType,
                                             unsigned long long flags) {
  if (shareableHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(reinterpret_cast<const void*>(handle));
  ExportHandleBytes export_handle{};
  const CUresult result = sharing(target.session, [&] {
    return call_cuMemExportToShareableHandle(target.session, target.context, export_handle.data(),
                                             handle, handleType, flags);
  });
  if (result != CUDA_SUCCESS) return result;
  return give_handle_file("cuMemExportToShareableHandle", export_handle, /*inherited=*/false,
                          static_cast<int*>(shareableHandle));
}

CUresult manual_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                               CUmemAllocationHandleType shHandleType) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    const bool of_windows =
        shHandleType == CU_MEM_HANDLE_TYPE_WIN32 || shHandleType == CU_MEM_HANDLE_TYPE_WIN32_KMT;
    return of_windows ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  ExportHandleBytes export_handle{};
  const auto descriptor = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  if (const CUresult result = read_handle_file(descriptor, &export_handle); result != CUDA_SUCCESS)
    return result;
  constexpr const char* kName = "cuMemImportFromShareableHandle";
  const auto import = [&](Session& session, uint16_t context) {
    CUmemGenericAllocationHandle given = 0;
    CUresult result = call_cuMemImportFromShareableHandle(session, context, &given,
                                                          export_handle.data(), shHandleType);
    if (result != CUDA_SUCCESS) return result;
    CUmemAllocationProp properties{};
    result = call_cuMemGetAllocationPropertiesFromHandle(session, context, &properties, given);
    if (result == CUDA_SUCCESS && properties.location.id == CU_DEVICE_INVALID)
      result = refuse_hidden_device(kName);
    if (result != CUDA_SUCCESS) {
      (void)call_cuMemRelease(session, context, given);
      return result;
    }
    auto* const memory =
        static_cast<MemorySource*>(session.find(rpc::HandleKind::kMemGeneric, given));
    if (memory != nullptr) memory->made_with(properties);
    *handle = given;
    return CUDA_SUCCESS;
  };
  return at_its_server(kName, [&](Session& session, uint16_t context) {
    return sharing(session, [&] { return import(session, context); });
  });
}

CUresult manual_cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_memory(dptr);
  return sharing(target.session, [&] {
    return wire::cuIpcGetMemHandle(target.session, target.context, pHandle, dptr);
  });
}

namespace {

// `times`: how often the memory has been open since this call opened it.
CUresult open_memory(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags,
                     unsigned* times) {
  if (pdptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Flags &= CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;  // what else stands there does not count
  constexpr const char* kName = "cuIpcOpenMemHandle";
  const auto open_at = [&](Session& session, uint16_t context) -> CUresult {
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0;
    int device = 0;
    const CUresult result =
        wire::fgIpcOpenMemory(session, context, &handle, Flags, &address, &base, &bytes, &device);
    if (result != CUDA_SUCCESS) return result;
    const Region region{.base = base,
                        .bytes = bytes,
                        .session = &session,
                        .context = current_context(),
                        .device = device_from_wire(session, device)};
    const bool is_hidden = region.device == CU_DEVICE_INVALID;
    if (is_hidden || taken_by_other(session, region.base, region.bytes)) {
      (void)wire::fgIpcCloseMemory(session, context, address);
      return is_hidden ? refuse_hidden_device(kName) : refuse_address(session, kName, region.base);
    }
    *times = enter_opened(session, region);
    *pdptr = address;
    return CUDA_SUCCESS;
  };
  return at_its_server(kName, [&](Session& session, uint16_t context) -> CUresult {
    // It belongs to a context, and other servers have no context of this one.
    if (context == 0) return CUDA_ERROR_NOT_PERMITTED;
    return sharing(session, [&] { return open_at(session, context); });
  });
}

}  // namespace

CUresult manual_cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle,
                                      unsigned int Flags) {
  unsigned times = 0;
  return open_memory(pdptr, handle, Flags, &times);
}

// The first version opens memory once.
CUresult manual_cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  unsigned times = 0;
  const CUresult result = open_memory(pdptr, handle, Flags, &times);
  if (result != CUDA_SUCCESS || times <= 1) return result;
  (void)manual_cuIpcCloseMemHandle(*pdptr);
  return CUDA_ERROR_ALREADY_MAPPED;
}

CUresult manual_cuIpcCloseMemHandle(CUdeviceptr dptr) {
  const CallTarget target = CallTarget::of_memory(dptr);
  if (const auto region = target.session.device_memory.find(dptr))
    CrossServerWork::finish_with({region->base, region->bytes});
  const Taken taken = take_opened(target.session, dptr);
  const CUresult result = wire::fgIpcCloseMemory(target.session, target.context, dptr);
  if (!taken.region) return result;
  if (result != CUDA_SUCCESS) enter_opened(target.session, *taken.region);
  if (taken.is_last && taken.region->reserved)
    release_reserved(taken.region->base, taken.region->bytes);
  return result;
}

namespace {

Event* find_event(Session& session, CUevent event) {
  return static_cast<Event*>(
      session.find(rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(event)));
}

}  // namespace

CUresult manual_cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return at_its_server("cuIpcOpenEventHandle", [&](Session& session, uint16_t context) {
    const CUresult result = call_fgIpcOpenEvent(session, context, &handle, phEvent);
    if (result != CUDA_SUCCESS) return result;
    session.observers.add(Observers::kOtherProcesses);
    if (Event* const event = find_event(session, *phEvent)) {
      event->interprocess = true;
      event->recorded = true;  // perhaps, by others
    }
    return CUDA_SUCCESS;
  });
}

CUresult manual_cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(event);
  const CUresult result = call_cuIpcGetEventHandle(target.session, target.context, pHandle, event);
  if (result == CUDA_SUCCESS) target.session.observers.add(Observers::kOtherProcesses);
  if (result == CUDA_ERROR_INVALID_HANDLE && find_event(target.session, event) != nullptr)
    *pHandle = {};  // as natively of an event that is not for several processes
  return result;
}

}  // namespace fargpu::client
