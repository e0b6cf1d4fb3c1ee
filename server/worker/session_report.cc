// What a session holds and does, for the daemon.
#include "server/worker/session_worker.h"

namespace fargpu::server {

bool SessionWorker::quiet() {
  return parts_.host_gate.waiting() == 0 && parts_.completion.calls_under_way() == 0;
}

bool SessionWorker::idle() {
  if (has_work() || !quiet()) return false;
  // A context that has failed works no more.
  for (const uint16_t context : parts_.contexts.ids()) {
    if (parts_.completion.ask(context) == CUDA_ERROR_NOT_READY) return false;
  }
  return true;
}

WorkerReport SessionWorker::report() {
  WorkerReport report;
  parts_.memory.settle_kept();
  report.memory_bytes = parts_.memory.used_on_devices();
  for (const uint16_t context : parts_.contexts.ids()) {
    ++report.contexts;
    report.streams += static_cast<uint32_t>(parts_.handles.streams(context).size());
  }
  report.idle = idle();
  report.waits = static_cast<uint32_t>(parts_.pending.size());
  report.helper_calls = static_cast<uint32_t>(parts_.completion.calls_under_way());
  report.host_functions = static_cast<uint32_t>(parts_.host_gate.waiting());
  return report;
}

}  // namespace fargpu::server
