// Contexts: ids are 16 bits wide and made by the client; what may wait for the GPU must not hold up
// the executor.
#include <functional>
#include <memory>
#include <vector>

#include "generated/schema/context.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "server/image/link_table.h"
#include "server/manual/manual.h"
#include "server/memory/host_pages.h"
#include "server/memory/ordered_copies.h"
#include "server/memory/shared_host.h"
#include "server/memory/staging.h"
#include "server/stream/copy_fences.h"
#include "server/stream/event_waits.h"
#include "server/stream/host_gate.h"

namespace fargpu::server {
namespace {

// Ids 1 .. 255 belong to primary contexts, in the order of devices.
constexpr uint32_t kFirstCreatedContext = 256;

bool is_device(Worker& worker, CUdevice device) {
  return device >= 0 && device < worker.services().device_count();
}

// What a context has registered with the driver.
struct Registrations {
  std::vector<SharedHost::Held> shared;
  std::vector<StagingRegistration> staging;
  std::vector<uint64_t> pages;
  std::vector<void*> gate_pages;
};

// Nothing of the context is used any more: its driver context is current for the last time on this
// thread.
std::shared_ptr<Registrations> let_go(Worker& worker, uint16_t id) {
  WorkerServices& services = worker.services();
  if (worker.enter_context(id) == CUDA_SUCCESS) services.completion().forget(id);
  services.ordered_copies().end_context(id);
  services.host_gate().give_up(id, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  services.event_waits().forget_context(id);
  services.copy_fences().forget_context(id);
  services.links().forget_context(id);
  services.unbind_context(id);
  worker.driver().cuCtxSetCurrent(nullptr);
  return std::make_shared<Registrations>(Registrations{
      services.shared_host().take_context(id), services.staging().take_registrations(id),
      services.host_pages().take_context(id), services.ordered_copies().take_pages(id)});
}

// When the context is idle: it goes from our tables, then `end` ends it in the driver (which takes
// its time, so aside), then the reply.
void end_when_idle(const LaterReply& later, uint16_t id, std::function<CUresult(CUcontext)> end) {
  later.worker().services().completion().when_idle(id, [later, id, end = std::move(end)](CUresult) {
    Worker& worker = later.worker();
    // What a kernel printed last must not be lost with its context.
    (void)worker.services().flush_output();
    const CUcontext context = worker.services().find_context(id);
    if (context == nullptr) {
      later.send(CUDA_ERROR_INVALID_CONTEXT);
      return;
    }
    const CUdevice device = worker.services().device_of_context(id);
    const std::shared_ptr<Registrations> registered = let_go(worker, id);
    // Other contexts may be using the memory that is registered in this one.
    worker.services().completion().aside_alone(
        0, device,
        [end, context, registered, &driver = worker.driver(),
         &shared = worker.services().shared_host(), &pages = worker.services().host_pages()] {
          driver.cuCtxSetCurrent(context);
          for (const SharedHost::Held& mapping : registered->shared) shared.withdraw(*mapping);
          for (const StagingRegistration& staging : registered->staging) staging.undo();
          for (const uint64_t address : registered->pages) (void)pages.withdraw(address);
          for (void* const page : registered->gate_pages) driver.cuMemFreeHost(page);
          driver.cuCtxSetCurrent(nullptr);
          return end(context);
        },
        [later, registered](CUresult result) {
          later.worker().services().host_pages().left(registered->pages);
          later.send(result);
        });
  });
}

}  // namespace

Status manual_cuCtxSynchronize(Worker& worker, const Request& request) {
  FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
  const LaterReply later(worker, request);
  worker.services().completion().when_idle(
      request.header.context, [later](CUresult result) { later.send_synchronised(result); });
  return Status();
}

Status manual_fgPrimaryRetain(Worker& worker, const Request& request) {
  return decoded("fgPrimaryRetain", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgPrimaryRetainParams>();
    const CUdevice device = params.getDev();
    if (!is_device(worker, device)) return answer(worker, request, CUDA_ERROR_INVALID_DEVICE);
    const auto id = static_cast<uint16_t>(device + 1);
    if (worker.services().find_context(id) != nullptr) return answer(worker, request, CUDA_SUCCESS);
    const DriverTable& driver = worker.driver();
    // A context that is active already keeps its flags; the driver says so, and that is no reason
    // to fail.
    if (params.getFlags() != 0 && driver.cuDevicePrimaryCtxSetFlags_v2 != nullptr) {
      driver.cuDevicePrimaryCtxSetFlags_v2(device, params.getFlags());
    }
    CUcontext context = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(driver.cuDevicePrimaryCtxRetain(&context, device));
    if (device == 0) worker.services().return_borrowed_context();
    return answer(worker, request, worker.services().bind_context(id, context, device));
  });
}

Status manual_fgPrimaryRelease(Worker& worker, const Request& request) {
  return decoded("fgPrimaryRelease", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgPrimaryReleaseParams>();
    const CUdevice device = params.getDev();
    if (!is_device(worker, device)) return answer(worker, request, CUDA_ERROR_INVALID_DEVICE);
    const auto id = static_cast<uint16_t>(device + 1);
    const bool reset = params.getReset() != 0;
    end_when_idle(
        LaterReply(worker, request), id, [&driver = worker.driver(), device, reset](CUcontext) {
          const CUresult result = reset ? driver.cuDevicePrimaryCtxReset_v2(device) : CUDA_SUCCESS;
          const CUresult released = driver.cuDevicePrimaryCtxRelease_v2(device);
          return result != CUDA_SUCCESS ? result : released;
        });
    return Status();
  });
}

Status manual_fgContextCreate(Worker& worker, const Request& request) {
  return decoded("fgContextCreate", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgContextCreateParams>();
    const uint32_t id = params.getContext();
    if (id < kFirstCreatedContext || id > UINT16_MAX)
      return malformed("fgContextCreate", "context id out of range");
    if (!is_device(worker, params.getDev()))
      return answer(worker, request, CUDA_ERROR_INVALID_DEVICE);
    CUcontext context = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        worker.driver().cuCtxCreate_v2(&context, params.getFlags(), params.getDev()));
    const CUresult result =
        worker.services().bind_context(static_cast<uint16_t>(id), context, params.getDev());
    if (result != CUDA_SUCCESS) worker.driver().cuCtxDestroy_v2(context);
    return answer(worker, request, result);
  });
}

Status manual_fgContextDestroy(Worker& worker, const Request& request) {
  return decoded("fgContextDestroy", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint32_t wide_id = reader.getRoot<schema::FgContextDestroyParams>().getContext();
    if (wide_id < kFirstCreatedContext || wide_id > UINT16_MAX) {
      return malformed("fgContextDestroy", "context id out of range");
    }
    const auto id = static_cast<uint16_t>(wide_id);
    end_when_idle(LaterReply(worker, request), id, [&driver = worker.driver()](CUcontext context) {
      return driver.cuCtxDestroy_v2(context);
    });
    return Status();
  });
}

}  // namespace fargpu::server
