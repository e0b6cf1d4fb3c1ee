// Memory that processes of one job give each other. What the program passes on is a ticket of the
// server's; the memory itself goes from worker to worker.
#include "client/manual/common.h"
#include "client/manual/ticket_file.h"
#include "client/memory/memory_source.h"
#include "client/process/process.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

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

// What other processes do with memory of this session, or this one with theirs, must not be told
// apart from a copy that has returned too early.
void begin_sharing(Session& session) {
  session.shares_memory.store(true, std::memory_order_release);
}

}  // namespace

CUresult manual_cuMemExportToShareableHandle(void* shareableHandle,
                                             CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType handleType,
                                             unsigned long long flags) {
  if (shareableHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(reinterpret_cast<const void*>(handle));
  begin_sharing(target.session);
  TicketBytes ticket{};
  const CUresult result = call_cuMemExportToShareableHandle(
      target.session, target.context, ticket.data(), handle, handleType, flags);
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
  return at_its_server("cuMemImportFromShareableHandle", [&](Session& session, uint16_t context) {
    begin_sharing(session);
    CUresult result =
        call_cuMemImportFromShareableHandle(session, context, handle, ticket.data(), shHandleType);
    if (result != CUDA_SUCCESS) return result;
    CUmemAllocationProp properties{};
    result = call_cuMemGetAllocationPropertiesFromHandle(session, context, &properties, *handle);
    auto* const memory =
        static_cast<MemorySource*>(session.find(rpc::HandleKind::kMemGeneric, *handle));
    if (result == CUDA_SUCCESS && memory != nullptr) memory->made_with(properties);
    return result;
  });
}

}  // namespace fargpu::client
