// EventWaits: waits for an event (cuEventSynchronize). Each waits for the record that the event
// held when the wait began.
//
// Recording an event again, or destroying it, does not change the waits of earlier calls. A
// driver's event only reports its last record. So when an event with waiters is recorded again, its
// id gets another driver event; the old one stays with its waiters, and the last of them destroys
// it. Without a wait there is no look-up. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "common/base/inline_function.h"
#include "server/core/core.h"
#include "server/stream/completion.h"

namespace fargpu::server {

class EventWaits {
 public:
  using Done = InlineFunction<void(CUresult), 72>;

  EventWaits(const Core& core, Completion& completion) : core_(core), completion_(completion) {}
  EventWaits(const EventWaits&) = delete;
  EventWaits& operator=(const EventWaits&) = delete;

  // `done` runs when the present record of event `id` is reached.
  void wait(uint64_t id, CUevent event, Done done);
  // Runs `record` with the driver event that the record belongs into: `event`, which stands for
  // `id`, or its successor.
  template <typename Record>
  CUresult record(uint64_t id, CUevent event, Record&& record) {
    if (waited_.empty()) [[likely]]
      return record(event);
    CUevent used = event;
    if (const CUresult result = begin_record(id, &used); result != CUDA_SUCCESS) return result;
    const CUresult result = record(used);
    if (used != event) end_record(id, used, result == CUDA_SUCCESS);
    return result;
  }
  // Destroys event `id`, now or after the waits for it.
  CUresult destroy(uint64_t id, CUevent event);
  // Graphs that the driver has made, or other processes, record the event or wait for it: it gets
  // no successors. A launch of such a graph, and every later record, is one that earlier waits wait
  // for, too.
  void never_replaced(uint64_t id) { kept_.insert(id); }
  // The waits go on.
  void event_ended(const ObjectEnd& end) {
    waited_.erase(end.id);
    kept_.erase(end.id);
  }

 private:
  // A driver event that is waited for.
  struct WaitedEvent {
    uint64_t id;
    CUevent event;
    ContextRef context;
    size_t waits = 0;
    bool orphan = false;  // the id stands for another event, or for none
  };
  // *event becomes a successor that may take the next record, if the event is waited for.
  CUresult begin_record(uint64_t id, CUevent* event);
  // The id stands for the successor from now on if it took the record.
  void end_record(uint64_t id, CUevent successor, bool taken);
  void release(const std::shared_ptr<WaitedEvent>& waited);

  const Core core_;
  Completion& completion_;
  std::unordered_map<uint64_t, std::shared_ptr<WaitedEvent>> waited_;  // by id
  std::unordered_set<uint64_t> kept_;                                  // ids
};

}  // namespace fargpu::server
