// Pools that sessions of one job give each other, and memory of them.
#include <cstring>

#include "generated/schema/internal.capnp.h"
#include "generated/schema/stream_ordered_memory.capnp.h"
#include "generated/server/internal_decode.h"
#include "generated/server/stream_ordered_memory_decode.h"
#include "server/manual/export_handles.h"

namespace fargpu::server {

Status manual_cuMemPoolExportToShareableHandle(Worker& worker, const Request& request) {
  return decode_cuMemPoolExportToShareableHandle(worker, request, [&](const auto& given) {
    if (given.pool == nullptr || given.handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    // Whether the driver would export it; the driver is called again at an import.
    int exported = -1;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemPoolExportToShareableHandle(
        &exported, given.pool, given.handleType, given.flags));
    Fd(exported).reset();
    ExportHandle export_handle;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().sharing.export_pool(given.pool_id, &export_handle));
    using Results = schema::CuMemPoolExportToShareableHandleResults;
    send_export_handle<Results>(worker, request.header, export_handle,
                                &Results::Builder::setHandleOut);
    return Status();
  });
}

Status manual_fgPoolImport(Worker& worker, const Request& request) {
  return decode_fgPoolImport(worker, request, [&](const auto& given) {
    FARGPU_NEEDS_DRIVER(cuMemPoolImportFromShareableHandle);
    const LaterReply later(worker, request);
    const auto import = [later, id = given.pool_id](CUresult result, const ExportHandle&,
                                                    const PeerAnswer& answer, Fd descriptor) {
      Worker& worker = later.worker();
      const DriverTable& driver = worker.driver();
      CUmemoryPool pool = nullptr;
      if (result == CUDA_SUCCESS) result = worker.enter_context(later.header().context);
      if (result == CUDA_SUCCESS) {
        result = driver.cuMemPoolImportFromShareableHandle(
            &pool, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.get())),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
      }
      if (result != CUDA_SUCCESS) return later.send(result);
      result = worker.parts().handles.add(rpc::HandleKind::kMemPool, id,
                                          {pool, 0, 0, static_cast<uint16_t>(answer.device)});
      if (result != CUDA_SUCCESS) {
        driver.cuMemPoolDestroy(pool);
        return later.send(result);
      }
      rpc::Responder::Frame frame(worker.responder(), later.header(),
                                  schema::fixed_bytes<schema::FgPoolImportResults>());
      frame.init<schema::FgPoolImportResults>().setDevice(answer.device);
      (void)frame.send(CUDA_SUCCESS);
    };
    worker.parts().sharing.fetch(SharedKind::kPool, given.handle, import);
    return Status();
  });
}

Status manual_cuMemPoolExportPointer(Worker& worker, const Request& request) {
  return decode_cuMemPoolExportPointer(worker, request, [&](const auto& given) {
    CUmemPoolPtrExportData native{};  // whether the driver gives any
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemPoolExportPointer(&native, given.ptr));
    ExportHandle export_handle;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().sharing.export_allocation(
        SharedKind::kPoolMemory, given.ptr, &export_handle));
    after_copies(worker, [&worker, header = request.header, export_handle] {
      using Results = schema::CuMemPoolExportPointerResults;
      send_export_handle<Results>(worker, header, export_handle,
                                  &Results::Builder::setShareDataOut);
    });
    return Status();
  });
}

Status manual_fgPoolImportMemory(Worker& worker, const Request& request) {
  return decode_fgPoolImportMemory(worker, request, [&](const auto& given) {
    FARGPU_NEEDS_DRIVER(cuMemPoolImportPointer);
    if (given.pool == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    const LaterReply later(worker, request);
    const auto import = [later, id = given.pool_id](CUresult result,
                                                    const ExportHandle& export_handle,
                                                    const PeerAnswer& answer, const Fd&) {
      Worker& worker = later.worker();
      void* pool = nullptr;
      CUmemPoolPtrExportData native{};
      std::memcpy(&native, answer.handle.data(), sizeof native);
      CUdeviceptr address = 0;
      if (result == CUDA_SUCCESS) result = worker.enter_context(later.header().context);
      // It may have ended meanwhile.
      if (result == CUDA_SUCCESS)
        result = worker.parts().handles.find(rpc::HandleKind::kMemPool, id, &pool);
      if (result == CUDA_SUCCESS) {
        result = worker.driver().cuMemPoolImportPointer(&address, static_cast<CUmemoryPool>(pool),
                                                        &native);
      }
      if (result != CUDA_SUCCESS) return later.send(result);
      worker.parts().sharing.opened_memory(
          export_handle, address, worker.parts().handles.find(id)->device, answer.bytes, 0);
      rpc::Responder::Frame frame(worker.responder(), later.header(),
                                  schema::fixed_bytes<schema::FgPoolImportMemoryResults>());
      auto results = frame.init<schema::FgPoolImportMemoryResults>();
      results.setAddress(address);
      results.setBytes(answer.bytes);
      (void)frame.send(CUDA_SUCCESS);
    };
    worker.parts().sharing.fetch(SharedKind::kPoolMemory, export_handle_in(given.data), import);
    return Status();
  });
}

}  // namespace fargpu::server
