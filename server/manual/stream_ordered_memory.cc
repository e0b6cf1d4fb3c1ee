// Memory of pools: charged to the device of its pool, whatever context is current, and not part of
// any context.
#include "generated/schema/stream_ordered_memory.capnp.h"
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
  rpc::Responder::Frame frame(worker.responder(), request.header, schema::fixed_bytes<Results>());
  frame.init<Results>().setDptr(pointer);
  return frame.send(CUDA_SUCCESS);
}

}  // namespace

// The memory comes from the current pool of the stream's device, which lies there too.
Status manual_cuMemAllocAsync(Worker& worker, const Request& request) {
  return decoded("cuMemAllocAsync", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuMemAllocAsyncParams>();
    FARGPU_NEEDS_DRIVER(cuMemAllocAsync);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kStream, params.getHStream(), &stream));
    const uint16_t owner = worker.parts().handles.context_of(params.getHStream());
    const CUdevice device =
        worker.parts().contexts.device_of(owner != 0 ? owner : request.header.context);
    return allocate<schema::CuMemAllocAsyncResults>(
        worker, request, device, params.getBytesize(), [&](CUdeviceptr* pointer) {
          return worker.driver().cuMemAllocAsync(pointer, params.getBytesize(), stream);
        });
  });
}

Status manual_cuMemAllocFromPoolAsync(Worker& worker, const Request& request) {
  return decoded("cuMemAllocFromPoolAsync", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuMemAllocFromPoolAsyncParams>();
    FARGPU_NEEDS_DRIVER(cuMemAllocFromPoolAsync);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUmemoryPool pool = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kMemPool, params.getPool(), &pool));
    if (pool == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kStream, params.getHStream(), &stream));
    return allocate<schema::CuMemAllocFromPoolAsyncResults>(
        worker, request, worker.parts().handles.find(params.getPool())->device,
        params.getBytesize(), [&](CUdeviceptr* pointer) {
          return worker.driver().cuMemAllocFromPoolAsync(pointer, params.getBytesize(), pool,
                                                         stream);
        });
  });
}

Status manual_cuMemPoolCreate(Worker& worker, const Request& request) {
  return decoded("cuMemPoolCreate", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuMemPoolCreateParams>();
    FARGPU_NEEDS_DRIVER(cuMemPoolCreate);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUmemPoolProps properties{};
    if (!read_struct(params.getPoolProps(), &properties))
      return malformed("cuMemPoolCreate", "poolProps has the wrong size");
    properties.win32SecurityAttributes = nullptr;
    CUmemoryPool pool = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemPoolCreate(&pool, &properties));
    const bool on_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const CUresult added = worker.parts().handles.add(
        rpc::HandleKind::kMemPool, params.getPool(),
        {pool, 0, 0, static_cast<uint16_t>(on_device ? properties.location.id : 0)});
    if (added != CUDA_SUCCESS) {
      worker.driver().cuMemPoolDestroy(pool);
      return refused_id(worker, request, "cuMemPoolCreate", added);
    }
    return answer(worker, request, CUDA_SUCCESS);
  });
}

}  // namespace fargpu::server
