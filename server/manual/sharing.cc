// Objects that sessions of one job give each other.
#include <cstring>
#include <utility>

#include "generated/schema/internal.capnp.h"
#include "generated/schema/memory.capnp.h"
#include "generated/schema/virtual_memory.capnp.h"
#include "generated/server/internal_decode.h"
#include "generated/server/memory_decode.h"
#include "generated/server/virtual_memory_decode.h"
#include "server/manual/export_handles.h"
#include "server/manual/manual.h"

namespace fargpu::server {

Status manual_cuMemExportToShareableHandle(Worker& worker, const Request& request) {
  return decode_cuMemExportToShareableHandle(worker, request, [&](const auto& given) {
    if (given.handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    // Whether the driver would export it; the driver is called again at an import.
    int exported = -1;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemExportToShareableHandle(
        &exported, given.handle, given.handleType, given.flags));
    Fd(exported).reset();
    ExportHandle export_handle;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        worker.parts().sharing.export_memory(given.handle, &export_handle));
    after_copies(worker, [&worker, header = request.header, export_handle] {
      using Results = schema::CuMemExportToShareableHandleResults;
      send_export_handle<Results>(worker, header, export_handle,
                                  &Results::Builder::setShareableHandle);
    });
    return Status();
  });
}

Status manual_cuMemImportFromShareableHandle(Worker& worker, const Request& request) {
  return decode_cuMemImportFromShareableHandle(worker, request, [&](const auto& given) {
    const LaterReply later(worker, request);
    const auto import = [later, id = given.handle_id](CUresult result,
                                                      const ExportHandle& export_handle,
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
        worker.parts().sharing.imported_memory(export_handle, answer, handle);
      }
      later.send(result);
    };
    worker.parts().sharing.fetch(SharedKind::kMemory, given.osHandle, import);
    return Status();
  });
}

Status manual_cuIpcGetMemHandle(Worker& worker, const Request& request) {
  return decode_cuIpcGetMemHandle(worker, request, [&](const auto& given) {
    CUipcMemHandle native{};  // whether the driver gives one
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuIpcGetMemHandle(&native, given.dptr));
    ExportHandle export_handle;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().sharing.export_allocation(
        SharedKind::kIpcMemory, given.dptr, &export_handle));
    after_copies(worker, [&worker, header = request.header, export_handle] {
      using Results = schema::CuIpcGetMemHandleResults;
      send_export_handle<Results>(worker, header, export_handle, &Results::Builder::setPHandle);
    });
    return Status();
  });
}

Status manual_fgIpcOpenMemory(Worker& worker, const Request& request) {
  return decode_fgIpcOpenMemory(worker, request, [&](const auto& given) {
    FARGPU_NEEDS_DRIVER(cuIpcOpenMemHandle_v2);
    const LaterReply later(worker, request);
    const auto open = [later, flags = given.flags](CUresult result,
                                                   const ExportHandle& export_handle,
                                                   const PeerAnswer& answer, const Fd&) {
      Worker& worker = later.worker();
      const DriverTable& driver = worker.driver();
      CUipcMemHandle native{};
      std::memcpy(&native, answer.handle.data(), sizeof native);
      CUdeviceptr address = 0, base = 0;
      size_t bytes = 0;
      int device = 0;
      if (result == CUDA_SUCCESS) result = worker.enter_context(later.header().context);
      if (result == CUDA_SUCCESS) result = driver.cuIpcOpenMemHandle_v2(&address, native, flags);
      if (result != CUDA_SUCCESS) return later.send(result);
      result = driver.cuMemGetAddressRange_v2(&base, &bytes, address);
      if (result == CUDA_SUCCESS) {
        result =
            driver.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
      }
      if (result != CUDA_SUCCESS) {
        driver.cuIpcCloseMemHandle(address);
        return later.send(result);
      }
      worker.parts().sharing.opened_memory(export_handle, address, static_cast<size_t>(device),
                                           bytes, later.header().context);
      rpc::Responder::Frame frame(worker.responder(), later.header(),
                                  schema::fixed_bytes<schema::FgIpcOpenMemoryResults>());
      auto results = frame.init<schema::FgIpcOpenMemoryResults>();
      results.setAddress(address);
      results.setBase(base);
      results.setBytes(bytes);
      results.setDevice(device);
      (void)frame.send(CUDA_SUCCESS);
    };
    worker.parts().sharing.fetch(SharedKind::kIpcMemory, export_handle_in(given.handle), open);
    return Status();
  });
}

Status manual_fgIpcCloseMemory(Worker& worker, const Request& request) {
  return decode_fgIpcCloseMemory(worker, request, [&](const auto& given) {
    FARGPU_NEEDS_DRIVER(cuIpcCloseMemHandle);
    const LaterReply later(worker, request);
    worker.parts().completion.off_thread_when_idle(
        request.header.context,
        [&driver = worker.driver(), address = given.address] {
          return driver.cuIpcCloseMemHandle(address);
        },
        [later, address = given.address](CUresult result) {
          if (result == CUDA_SUCCESS) later.worker().parts().memory.closed(address);
          later.send(result);
        });
    return Status();
  });
}

Status manual_cuIpcGetEventHandle(Worker& worker, const Request& request) {
  return decode_cuIpcGetEventHandle(worker, request, [&](const auto& given) {
    CUipcEventHandle native{};
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuIpcGetEventHandle(&native, given.event));
    ExportHandle export_handle;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        worker.parts().sharing.export_event(given.event_id, &export_handle));
    using Results = schema::CuIpcGetEventHandleResults;
    send_export_handle<Results>(worker, request.header, export_handle,
                                &Results::Builder::setPHandle);
    return Status();
  });
}

Status manual_fgIpcOpenEvent(Worker& worker, const Request& request) {
  return decode_fgIpcOpenEvent(worker, request, [&](const auto& given) {
    FARGPU_NEEDS_DRIVER(cuIpcOpenEventHandle);
    const LaterReply later(worker, request);
    const auto open = [later, id = given.event_id](CUresult result, const ExportHandle&,
                                                   const PeerAnswer& answer, const Fd&) {
      Worker& worker = later.worker();
      CUipcEventHandle native{};
      std::memcpy(&native, answer.handle.data(), sizeof native);
      CUevent event = nullptr;
      if (result == CUDA_SUCCESS) result = worker.enter_context(later.header().context);
      if (result == CUDA_ERROR_INVALID_VALUE) result = CUDA_ERROR_MAP_FAILED;  // as the driver
      if (result == CUDA_SUCCESS) result = worker.driver().cuIpcOpenEventHandle(&event, native);
      if (result == CUDA_SUCCESS) {
        result = later.add(rpc::HandleKind::kEvent, id, event);
        if (result == CUDA_SUCCESS) {
          worker.parts().event_waits.never_replaced(id);
        } else {
          worker.driver().cuEventDestroy_v2(event);
        }
      }
      later.send(result);
    };
    worker.parts().sharing.fetch(SharedKind::kIpcEvent, export_handle_in(given.handle), open);
    return Status();
  });
}

}  // namespace fargpu::server
