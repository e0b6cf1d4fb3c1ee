// Contexts: ids are 16 bits wide and made by the client; what may wait for the GPU must not hold up
// the executor.
#include <functional>
#include <memory>

#include "generated/server/context_decode.h"
#include "generated/server/internal_decode.h"
#include "server/manual/context_end.h"
#include "server/manual/manual.h"

namespace fargpu::server {
namespace {

bool is_device(Worker& worker, CUdevice device) {
  return device >= 0 && device < worker.parts().contexts.device_count();
}

// Launches in streams of other contexts have host nodes in this one: it is idle, but for words that
// they have not passed (server/stream/host_words.h). In a context that has failed nothing passes.
void end_context_when_passed(const LaterReply& later, uint16_t id,
                             const std::function<CUresult(CUcontext)>& end) {
  later.worker().parts().pending.add([later, id, end] {
    auto& parts = later.worker().parts();
    CUresult state = parts.contexts.enter(id);
    if (state == CUDA_SUCCESS) state = later.worker().driver().cuStreamQuery(CU_STREAM_LEGACY);
    const bool goes_on = state == CUDA_SUCCESS || state == CUDA_ERROR_NOT_READY;
    if (goes_on && parts.host_gate.any_to_pass(id)) return false;
    end_context_when_idle(later, id, end);
    return true;
  });
}

}  // namespace

void end_context_when_idle(const LaterReply& later, uint16_t id,
                           std::function<CUresult(CUcontext)> end) {
  const auto is_idle = [later, id, end = std::move(end)](CUresult state) {
    Worker& worker = later.worker();
    if (state == CUDA_SUCCESS && worker.parts().host_gate.any_to_pass(id)) {
      end_context_when_passed(later, id, end);
      return;
    }
    // What a kernel printed last must not be lost with its context.
    (void)worker.parts().output.flush();
    Contexts& contexts = worker.parts().contexts;
    const CUcontext context = contexts.find(id);
    if (context == nullptr) {
      later.send(CUDA_ERROR_INVALID_CONTEXT);
      return;
    }
    const CUdevice device = contexts.device_of(id);
    std::vector<std::shared_ptr<ContextEnd>> endings;
    std::vector<CUgreenCtx> greens;
    for (const uint16_t green : contexts.greens_of(id)) {
      greens.push_back(contexts.green(green));
      worker.parts().resources.context_ended(green);
      endings.push_back(worker.parts().end_context(green));
    }
    endings.push_back(worker.parts().end_context(id));
    // Other contexts may be using the memory that is registered in this one.
    worker.parts().completion.off_thread_exclusive(
        0, device,
        [end, context, endings, greens, &driver = worker.driver()] {
          driver.cuCtxSetCurrent(context);
          for (const auto& ending : endings) {
            for (const auto& withdraw : ending->withdrawals) withdraw();
          }
          driver.cuCtxSetCurrent(nullptr);
          for (const CUgreenCtx green : greens) driver.cuGreenCtxDestroy(green);
          return end(context);
        },
        [later, endings](CUresult result) {
          for (const auto& ending : endings) {
            for (const auto& next : ending->afterwards) next();
          }
          later.send(result);
        });
  };
  later.worker().parts().completion.when_idle(id, is_idle);
}

Status manual_cuCtxSetLimit(Worker& worker, const Request& request) {
  return decode_cuCtxSetLimit(worker, request, [&](const auto& given) -> Status {
    const DriverTable& driver = worker.driver();
    MemoryAccount& memory = worker.parts().memory;
    const bool is_stack = given.limit == CU_LIMIT_STACK_SIZE;
    const bool is_memory = given.limit == CU_LIMIT_MALLOC_HEAP_SIZE ||
                           given.limit == CU_LIMIT_PRINTF_FIFO_SIZE || is_stack;
    if (!is_memory) return answer(worker, request, driver.cuCtxSetLimit(given.limit, given.value));
    size_t before = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(driver.cuCtxGetLimit(&before, given.limit));
    const auto resize = [&](uint64_t from, uint64_t to) {
      if (is_stack) return memory.set_stack(to);
      if (to > from) return memory.grow_context(to - from);
      memory.shrink_context(from - to);
      return CUDA_SUCCESS;
    };
    if (given.value > before) FARGPU_ANSWER_UNLESS_SUCCESS(resize(before, given.value));
    const CUresult result = driver.cuCtxSetLimit(given.limit, given.value);
    if (result == CUDA_SUCCESS && given.value < before) (void)resize(before, given.value);
    if (result != CUDA_SUCCESS && given.value > before) (void)resize(given.value, before);
    return answer(worker, request, result);
  });
}

Status manual_cuCtxSynchronize(Worker& worker, const Request& request) {
  FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
  const LaterReply later(worker, request);
  worker.parts().completion.when_idle(request.header.context, [later](CUresult result) {
    later.worker().parts().memory.settle_kept();
    later.send_synchronised(result);
  });
  return Status();
}

Status manual_fgPrimaryRetain(Worker& worker, const Request& request) {
  return decode_fgPrimaryRetain(worker, request, [&](const auto& given) -> Status {
    if (!is_device(worker, given.dev)) return answer(worker, request, CUDA_ERROR_INVALID_DEVICE);
    const uint16_t id = primary_context_of(given.dev);
    if (worker.parts().contexts.find(id) != nullptr) return answer(worker, request, CUDA_SUCCESS);
    const DriverTable& driver = worker.driver();
    // A context that is active already keeps its flags; the driver says so, and that is no reason
    // to fail.
    if (given.flags != 0 && driver.cuDevicePrimaryCtxSetFlags_v2 != nullptr)
      driver.cuDevicePrimaryCtxSetFlags_v2(given.dev, given.flags);
    CUcontext context = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(driver.cuDevicePrimaryCtxRetain(&context, given.dev));
    if (given.dev == 0) worker.parts().contexts.return_borrowed();
    return answer(worker, request, worker.parts().contexts.bind(id, context, given.dev));
  });
}

Status manual_fgPrimaryRelease(Worker& worker, const Request& request) {
  return decode_fgPrimaryRelease(worker, request, [&](const auto& given) -> Status {
    if (!is_device(worker, given.dev)) return answer(worker, request, CUDA_ERROR_INVALID_DEVICE);
    end_context_when_idle(
        LaterReply(worker, request), primary_context_of(given.dev),
        [&driver = worker.driver(), device = given.dev, reset = given.reset != 0](CUcontext) {
          const CUresult result = reset ? driver.cuDevicePrimaryCtxReset_v2(device) : CUDA_SUCCESS;
          const CUresult released = driver.cuDevicePrimaryCtxRelease_v2(device);
          return result != CUDA_SUCCESS ? result : released;
        });
    return Status();
  });
}

Status manual_fgContextCreate(Worker& worker, const Request& request) {
  return decode_fgContextCreate(worker, request, [&](const auto& given) -> Status {
    if (!is_created_context(given.context))
      return malformed("fgContextCreate", "context id out of range");
    if (!is_device(worker, given.dev)) return answer(worker, request, CUDA_ERROR_INVALID_DEVICE);
    if (worker.parts().contexts.count() >= kMostContexts)
      return answer(worker, request, CUDA_ERROR_OUT_OF_MEMORY);
    CUcontext context = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuCtxCreate_v2(&context, given.flags, given.dev));
    const CUresult result =
        worker.parts().contexts.bind(static_cast<uint16_t>(given.context), context, given.dev);
    if (result != CUDA_SUCCESS) worker.driver().cuCtxDestroy_v2(context);
    return answer(worker, request, result);
  });
}

Status manual_fgContextDestroy(Worker& worker, const Request& request) {
  return decode_fgContextDestroy(worker, request, [&](const auto& given) -> Status {
    if (!is_created_context(given.context))
      return malformed("fgContextDestroy", "context id out of range");
    end_context_when_idle(
        LaterReply(worker, request), static_cast<uint16_t>(given.context),
        [&driver = worker.driver()](CUcontext context) { return driver.cuCtxDestroy_v2(context); });
    return Status();
  });
}

}  // namespace fargpu::server
