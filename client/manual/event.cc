// Events: waiting for one is a point where mapped memory becomes equal.
#include "client/manual/common.h"

namespace fargpu::client {

CUresult manual_cuEventQuery(CUevent hEvent) {
  const Here here;
  const CUresult result = call_cuEventQuery(here.session, here.context, hEvent);
  return result == CUDA_SUCCESS ? after_synchronisation(here.session, /*all_done=*/false) : result;
}

CUresult manual_cuEventSynchronize(CUevent hEvent) {
  const Here here;
  const CUresult result = call_cuEventSynchronize(here.session, here.context, hEvent);
  return result == CUDA_SUCCESS ? after_synchronisation(here.session, /*all_done=*/false) : result;
}

}  // namespace fargpu::client
