// Pools of a device, and their memory: charged to the device of its pool, whatever context is
// current, and not part of any context.
#include "generated/server/device_decode.h"
#include "generated/server/stream_ordered_memory_decode.h"
#include "server/manual/manual.h"

namespace fargpu::server {
namespace {

template <typename Results, typename Allocate>
Status allocate(Worker& worker, const Request& request, CUdevice device, uint64_t bytes,
                Allocate&& driver_allocate) {
  MemoryAccount& memory = worker.parts().memory;
  FARGPU_ANSWER_UNLESS_SUCCESS(memory.charge(device, bytes));
  CUdeviceptr pointer = 0;
  if (const CUresult result = driver_allocate(&pointer); result != CUDA_SUCCESS) {
    memory.refund(static_cast<size_t>(device), bytes);
    return answer(worker, request, result);
  }
  memory.remember_pool_memory(pointer, bytes, device);
  memory.settle(static_cast<size_t>(device));
  rpc::Responder::Frame frame(worker.responder(), request.header, schema::fixed_bytes<Results>());
  frame.init<Results>().setDptr(pointer);
  return frame.send(CUDA_SUCCESS);
}

}  // namespace

// The memory comes from the current pool of the stream's device, which lies there too.
Status manual_cuMemAllocAsync(Worker& worker, const Request& request) {
  return decode_cuMemAllocAsync(worker, request, [&](const auto& given) {
    const uint16_t owner = worker.parts().handles.context_of(given.hStream_id);
    const CUdevice device =
        worker.parts().contexts.device_of(owner != 0 ? owner : request.header.context);
    worker.parts().memory.pools().use_default(static_cast<size_t>(device));
    return allocate<schema::CuMemAllocAsyncResults>(
        worker, request, device, given.bytesize, [&](CUdeviceptr* pointer) {
          return worker.driver().cuMemAllocAsync(pointer, given.bytesize, given.hStream);
        });
  });
}

Status manual_cuMemAllocFromPoolAsync(Worker& worker, const Request& request) {
  return decode_cuMemAllocFromPoolAsync(worker, request, [&](const auto& given) {
    if (given.pool == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    return allocate<schema::CuMemAllocFromPoolAsyncResults>(
        worker, request, worker.parts().handles.find(given.pool_id)->device, given.bytesize,
        [&](CUdeviceptr* pointer) {
          return worker.driver().cuMemAllocFromPoolAsync(pointer, given.bytesize, given.pool,
                                                         given.hStream);
        });
  });
}

Status manual_cuMemPoolCreate(Worker& worker, const Request& request) {
  return decode_cuMemPoolCreate(worker, request, [&](const auto& given) -> Status {
    const CUmemPoolProps& properties = *given.poolProps;
    CUmemoryPool pool = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemPoolCreate(&pool, &properties));
    const bool on_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const CUresult added = worker.parts().handles.add(
        rpc::HandleKind::kMemPool, given.pool_id,
        {pool, 0, 0, static_cast<uint16_t>(on_device ? properties.location.id : 0)});
    if (added != CUDA_SUCCESS) {
      worker.driver().cuMemPoolDestroy(pool);
      return refused_id(worker, request, "cuMemPoolCreate", added);
    }
    if (on_device)
      worker.parts().memory.pools().add(pool, static_cast<size_t>(properties.location.id));
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_cuMemPoolDestroy(Worker& worker, const Request& request) {
  return decode_cuMemPoolDestroy(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuMemPoolDestroy);
    if (given.pool == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    const size_t device = worker.parts().handles.find(given.pool_id)->device;
    const CUresult result = worker.parts().memory.pools().destroy(given.pool, device);
    if (result == CUDA_SUCCESS) worker.remove(given.pool_id);
    return answer(worker, request, result);
  });
}

Status manual_cuDeviceGetDefaultMemPool(Worker& worker, const Request& request) {
  return decode_cuDeviceGetDefaultMemPool(worker, request, [&](const auto& given) -> Status {
    CUmemoryPool pool = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuDeviceGetDefaultMemPool(&pool, given.dev));
    const CUresult added =
        worker.parts().handles.add(rpc::HandleKind::kMemPool, given.pool_out_id,
                                   {pool, 0, 0, static_cast<uint16_t>(given.dev)});
    if (added != CUDA_SUCCESS)
      return refused_id(worker, request, "cuDeviceGetDefaultMemPool", added);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

}  // namespace fargpu::server
