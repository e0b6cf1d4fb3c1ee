// Memory that processes of one job give each other. What the program passes on is a ticket of the
// server's; the memory itself goes from worker to worker.
#include "client/manual/common.h"
#include "client/manual/ticket_file.h"
#include "client/memory/memory_source.h"
#include "client/process/process.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

// What other processes do with memory of this session, or this one with theirs, must not be told
// apart from a copy that has returned too early: no copy does from here on, unless `share` fails.
template <typename Share>
CUresult sharing(Session& session, Share&& share) {
  session.shares_memory.fetch_add(1, std::memory_order_acq_rel);
  const CUresult result = share();
  if (result != CUDA_SUCCESS) session.shares_memory.fetch_sub(1, std::memory_order_acq_rel);
  return result;
}

// A driver that is not told of a device has no memory of it.
CUresult refuse_hidden_device(const char* name) {
  log::error("{}: the memory lies on a GPU that CUDA_VISIBLE_DEVICES hides from this process",
             name);
  return CUDA_ERROR_INVALID_DEVICE;
}

// Runs import(session, context) for the session whose server gave the ticket out: the current one,
// or else another one.
template <typename Import>
CUresult at_its_server(const char* name, Import&& import) {
  const CallTarget current = CallTarget::of_current();
  CUresult result = import(current.session, current.context);
  Process::get().for_each_session([&](Session& session) {
    if (result == CUDA_ERROR_NOT_PERMITTED && &session != &current.session)
      result = import(session, uint16_t{0});
  });
  if (result == CUDA_ERROR_NOT_PERMITTED) {
    log::error(
        "{}: refused: what was exported belongs to another job or to another server; only "
        "processes of one fargpu run share GPU memory",
        name);
  }
  return result;
}

}  // namespace

CUresult manual_cuMemExportToShareableHandle(void* shareableHandle,
                                             CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType handleType,
                                             unsigned long long flags) {
  if (shareableHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(reinterpret_cast<const void*>(handle));
  TicketBytes ticket{};
  const CUresult result = sharing(target.session, [&] {
    return call_cuMemExportToShareableHandle(target.session, target.context, ticket.data(), handle,
                                             handleType, flags);
  });
  if (result != CUDA_SUCCESS) return result;
  auto file = make_ticket_file(ticket);
  if (!file.ok()) {
    log::error("cuMemExportToShareableHandle: {}", file.status().message());
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *static_cast<int*>(shareableHandle) = file->release();
  return CUDA_SUCCESS;
}

CUresult manual_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                               CUmemAllocationHandleType shHandleType) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return shHandleType == CU_MEM_HANDLE_TYPE_WIN32 ? CUDA_ERROR_NOT_SUPPORTED
                                                    : CUDA_ERROR_INVALID_VALUE;
  }
  TicketBytes ticket{};
  const auto descriptor = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  if (!read_ticket_file(descriptor, &ticket).ok()) return CUDA_ERROR_UNKNOWN;
  constexpr const char* kName = "cuMemImportFromShareableHandle";
  const auto import = [&](Session& session, uint16_t context) {
    CUmemGenericAllocationHandle given = 0;
    CUresult result =
        call_cuMemImportFromShareableHandle(session, context, &given, ticket.data(), shHandleType);
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

}  // namespace fargpu::client
