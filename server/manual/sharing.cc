// Objects that sessions of one job give each other.
#include "generated/schema/virtual_memory.capnp.h"
#include "generated/server/virtual_memory_decode.h"
#include "server/manual/manual.h"

namespace fargpu::server {
namespace {

// Another process may look at the memory as soon as the call has returned: copies that have
// returned earlier, without having ended, end before. Runs `reply` then.
void after_copies(Worker& worker, std::function<void()> reply) {
  CopyFences& fences = worker.parts().copy_fences;
  const uint64_t newest = fences.newest();
  if (!fences.stands(newest, CopyFences::Which::kAll)) return reply();
  worker.defer([&fences, newest, reply = std::move(reply)] {
    if (fences.stands(newest, CopyFences::Which::kAll)) return false;
    reply();
    return true;
  });
}

template <typename Results>
void send_ticket(Worker& worker, const wire::FrameHeader& header, const Ticket& ticket,
                 void (Results::Builder::*set)(capnp::Data::Reader)) {
  rpc::Responder::Frame frame(worker.responder(), header,
                              schema::fixed_bytes<Results>() + sizeof ticket);
  (frame.template init<Results>().*set)(wire::as_data(&ticket, sizeof ticket));
  (void)frame.send(CUDA_SUCCESS);
}

}  // namespace

Status manual_cuMemExportToShareableHandle(Worker& worker, const Request& request) {
  return decode_cuMemExportToShareableHandle(worker, request, [&](const auto& given) {
    if (given.handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    // Whether the driver would; it is asked again when somebody imports.
    int exported = -1;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemExportToShareableHandle(
        &exported, given.handle, given.handleType, given.flags));
    Fd(exported).reset();
    Ticket ticket;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().sharing.export_memory(given.handle, &ticket));
    after_copies(worker, [&worker, header = request.header, ticket] {
      using Results = schema::CuMemExportToShareableHandleResults;
      send_ticket<Results>(worker, header, ticket, &Results::Builder::setShareableHandle);
    });
    return Status();
  });
}

Status manual_cuMemImportFromShareableHandle(Worker& worker, const Request& request) {
  return decode_cuMemImportFromShareableHandle(worker, request, [&](const auto& given) {
    const LaterReply later(worker, request);
    const auto import = [later, id = given.handle_id](CUresult result, const Ticket& ticket,
                                                      const PeerAnswer& answer, Fd descriptor) {
      Worker& worker = later.worker();
      if (result == CUDA_SUCCESS) result = worker.enter_context(later.header().context);
      if (result != CUDA_SUCCESS) return later.send(result);
      CUmemGenericAllocationHandle handle = 0;
      result = worker.driver().cuMemImportFromShareableHandle(
          &handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.get())),
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      if (result != CUDA_SUCCESS) return later.send(result);
      result = worker.add(rpc::HandleKind::kMemGeneric, id, handle_pointer(handle), 0);
      if (result != CUDA_SUCCESS) {
        worker.driver().cuMemRelease(handle);
      } else {
        worker.parts().sharing.imported_memory(ticket, answer, handle);
      }
      later.send(result);
    };
    worker.parts().sharing.fetch_memory(given.osHandle, import);
    return Status();
  });
}

}  // namespace fargpu::server
