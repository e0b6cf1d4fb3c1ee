#include "server/stream/stream_events.h"

#include "generated/server/driver_table.h"

namespace fargpu::server {

CUevent StreamEvents::take(uint16_t context) {
  std::vector<CUevent>& unused = unused_[context];
  if (!unused.empty()) {
    const CUevent event = unused.back();
    unused.pop_back();
    return event;
  }
  CUevent event = nullptr;
  return driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : nullptr;
}

CUresult StreamEvents::record(uint16_t context, CUstream stream, CUevent* event) {
  if (*event != nullptr) return driver_.cuEventRecord(*event, stream);
  const CUevent taken = take(context);
  if (taken == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = driver_.cuEventRecord(taken, stream);
  if (result == CUDA_SUCCESS) {
    *event = taken;
  } else {
    give_back(context, taken);
  }
  return result;
}

CUresult StreamEvents::wait(CUstream stream, CUevent event) {
  return driver_.cuStreamWaitEvent(stream, event, 0);
}

void StreamEvents::context_ended(const ContextEnd& end) {
  const auto found = unused_.find(end.id);
  if (found == unused_.end()) return;
  for (const CUevent event : found->second) driver_.cuEventDestroy_v2(event);
  unused_.erase(found);
}

}  // namespace fargpu::server
