#include "server/stream/event_waits.h"

#include <utility>

namespace fargpu::server {

void EventWaits::wait(uint64_t id, CUevent event, Done done) {
  std::shared_ptr<WaitedEvent>& known = waited_[id];
  if (known == nullptr)
    known = std::make_shared<WaitedEvent>(
        WaitedEvent{id, event, core_.contexts.ref(core_.handles.context_of(id))});
  ++known->waits;
  completion_.when(UntilReached{known->context, event},
                   [this, waited = known, done = std::move(done)](CUresult result) mutable {
                     release(waited);
                     done(result);
                   });
}

CUresult EventWaits::begin_record(uint64_t id, CUevent* event) {
  const auto found = waited_.find(id);
  if (found == waited_.end() || kept_.contains(id)) return CUDA_SUCCESS;
  const DriverTable& driver = core_.driver;
  const uint16_t current = core_.contexts.current();
  if (const CUresult result = core_.contexts.enter(found->second->context);
      result != CUDA_SUCCESS) {
    return result;
  }
  // Finds out whether the event measures time. It has been recorded, so this call is only invalid
  // for an event that does not.
  float unused = 0;
  const bool timed =
      driver.cuEventElapsedTime_v2 == nullptr ||
      driver.cuEventElapsedTime_v2(&unused, *event, *event) != CUDA_ERROR_INVALID_HANDLE;
  const CUresult made =
      driver.cuEventCreate(event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
  const CUresult back = core_.contexts.enter(current);
  return made != CUDA_SUCCESS ? made : back;
}

void EventWaits::end_record(uint64_t id, CUevent successor, bool taken) {
  const auto found = waited_.find(id);
  // A launch that records the event twice has given it a successor already.
  if (!taken || found == waited_.end()) {
    core_.driver.cuEventDestroy_v2(successor);
    return;
  }
  found->second->orphan = true;
  waited_.erase(found);
  core_.handles.replace(id, successor);
}

CUresult EventWaits::destroy(uint64_t id, CUevent event) {
  const auto found = waited_.find(id);
  if (found == waited_.end()) return core_.driver.cuEventDestroy_v2(event);
  found->second->orphan = true;
  waited_.erase(found);
  return CUDA_SUCCESS;
}

void EventWaits::release(const std::shared_ptr<WaitedEvent>& waited) {
  if (--waited->waits != 0) return;
  if (waited->orphan) {
    if (core_.contexts.enter(waited->context) == CUDA_SUCCESS)
      core_.driver.cuEventDestroy_v2(waited->event);
    return;
  }
  const auto found = waited_.find(waited->id);
  if (found != waited_.end() && found->second == waited) waited_.erase(found);
}

}  // namespace fargpu::server
