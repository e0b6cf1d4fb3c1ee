// Devices: what they have that is an object here.
#include "generated/schema/device.capnp.h"
#include "server/manual/manual.h"

namespace fargpu::server {

Status manual_cuDeviceGetDefaultMemPool(Worker& worker, const Request& request) {
  return decoded("cuDeviceGetDefaultMemPool", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuDeviceGetDefaultMemPoolParams>();
    FARGPU_NEEDS_DRIVER(cuDeviceGetDefaultMemPool);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUmemoryPool pool = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuDeviceGetDefaultMemPool(&pool, params.getDev()));
    const CUresult added =
        worker.parts().handles.add(rpc::HandleKind::kMemPool, params.getPoolOut(),
                                   {pool, 0, 0, static_cast<uint16_t>(params.getDev())});
    if (added != CUDA_SUCCESS)
      return refused_id(worker, request, "cuDeviceGetDefaultMemPool", added);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

}  // namespace fargpu::server
