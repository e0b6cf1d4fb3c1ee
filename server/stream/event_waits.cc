#include "server/stream/event_waits.h"

#include <utility>

#include "generated/server/driver_table.h"
#include "server/object/request.h"
#include "server/object/worker_services.h"

namespace fargpu::server {

void EventWaits::wait(uint64_t id, CUevent event, Done done) {
  std::shared_ptr<Held>& known = waited_[id];
  if (known == nullptr)
    known = std::make_shared<Held>(Held{id, event, worker_.services().context_of(id)});
  ++known->waits;
  worker_.defer([this, held = known, done = std::move(done)] {
    CUresult result = worker_.enter_context(held->context);
    if (result == CUDA_SUCCESS) {
      result = worker_.driver().cuEventQuery(held->event);
      if (result == CUDA_ERROR_NOT_READY) return false;
      // Done already, so this does not wait: it makes the driver write out what kernels printed.
      if (result == CUDA_SUCCESS) result = worker_.driver().cuEventSynchronize(held->event);
    }
    release(held);
    done(result);
    return true;
  });
}

CUresult EventWaits::begin_record(uint64_t id, CUevent* event) {
  const auto found = waited_.find(id);
  if (found == waited_.end()) return CUDA_SUCCESS;
  const DriverTable& driver = worker_.driver();
  const uint16_t current = worker_.services().current_context();
  if (const CUresult result = worker_.enter_context(found->second->context);
      result != CUDA_SUCCESS) {
    return result;
  }
  // The driver tells whether the event measures time: it has been recorded, so only one that does
  // not makes this invalid.
  float unused = 0;
  const bool timed =
      driver.cuEventElapsedTime_v2 == nullptr ||
      driver.cuEventElapsedTime_v2(&unused, *event, *event) != CUDA_ERROR_INVALID_HANDLE;
  const CUresult made =
      driver.cuEventCreate(event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
  const CUresult back = worker_.enter_context(current);
  return made != CUDA_SUCCESS ? made : back;
}

void EventWaits::end_record(uint64_t id, CUevent successor, bool taken) {
  if (!taken) {
    worker_.driver().cuEventDestroy_v2(successor);
    return;
  }
  const auto found = waited_.find(id);
  found->second->orphan = true;
  waited_.erase(found);
  worker_.services().replace_handle(id, successor);
}

CUresult EventWaits::destroy(uint64_t id, CUevent event) {
  const auto found = waited_.find(id);
  if (found == waited_.end()) return worker_.driver().cuEventDestroy_v2(event);
  found->second->orphan = true;
  waited_.erase(found);
  return CUDA_SUCCESS;
}

void EventWaits::forget_context(uint16_t context) {
  std::erase_if(waited_, [context](const auto& entry) { return entry.second->context == context; });
}

void EventWaits::release(const std::shared_ptr<Held>& held) {
  if (--held->waits != 0) return;
  if (held->orphan) {
    if (worker_.enter_context(held->context) == CUDA_SUCCESS)
      worker_.driver().cuEventDestroy_v2(held->event);
    return;
  }
  const auto found = waited_.find(held->id);
  if (found != waited_.end() && found->second == held) waited_.erase(found);
}

}  // namespace fargpu::server
