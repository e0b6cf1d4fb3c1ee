// Devices: what they have that is an object here.
#include "generated/server/device_decode.h"
#include "server/manual/manual.h"

namespace fargpu::server {

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
