// Green contexts. The worker keeps the driver's resources, and binds what a green context is made
// into like any other context.
#include <algorithm>
#include <vector>

#include "generated/server/green_context_decode.h"
#include "generated/server/internal_decode.h"
#include "server/manual/context_end.h"
#include "server/manual/manual.h"

namespace fargpu::server {
namespace {

constexpr unsigned kMostResources = 1024;

template <typename Results>
Status send_resource(Worker& worker, const Request& request, CUresult result,
                     const CUdevResource& resource, uint16_t context) {
  if (result != CUDA_SUCCESS) return answer(worker, request, result);
  const CUdevResource given = worker.parts().resources.give(resource, context);
  rpc::Responder::Frame frame(worker.responder(), request.header,
                              schema::fixed_bytes<Results>() + schema::padded(sizeof given));
  frame.init<Results>().setResource(as_data(&given, sizeof given));
  return frame.send(CUDA_SUCCESS);
}

}  // namespace

Status manual_cuDeviceGetDevResource(Worker& worker, const Request& request) {
  return decode_cuDeviceGetDevResource(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuDeviceGetDevResource);
    CUdevResource resource{};
    const CUresult result =
        worker.driver().cuDeviceGetDevResource(given.device, &resource, given.type);
    return send_resource<schema::CuDeviceGetDevResourceResults>(worker, request, result, resource,
                                                                0);
  });
}

Status manual_cuCtxGetDevResource(Worker& worker, const Request& request) {
  return decode_cuCtxGetDevResource(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuCtxGetDevResource);
    CUdevResource resource{};
    const CUresult result = worker.driver().cuCtxGetDevResource(given.hCtx, &resource, given.type);
    // A green context's resource lives in it.
    const auto id = static_cast<uint16_t>(given.hCtx_id);
    const uint16_t of = worker.parts().contexts.green(id) == nullptr ? uint16_t{0} : id;
    return send_resource<schema::CuCtxGetDevResourceResults>(worker, request, result, resource, of);
  });
}

Status manual_fgResourceSplit(Worker& worker, const Request& request) {
  return decode_fgResourceSplit(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuDevSmResourceSplitByCount);
    DeviceResources& resources = worker.parts().resources;
    const CUdevResource* const input = resources.find(*given.input);
    if (input == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    const uint16_t of = resources.context_of(*given.input);
    if (given.wanted > kMostResources) return malformed("fgResourceSplit", "too many groups");
    unsigned made = given.wanted;
    CUdevResource rest{};
    std::vector<CUdevResource> groups(std::max(1u, made));
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuDevSmResourceSplitByCount(
        given.query != 0 ? nullptr : groups.data(), &made, input, &rest, given.flags,
        given.minCount));
    made = std::min(made, given.wanted);
    groups.resize(made);
    if (given.query == 0) {
      for (CUdevResource& group : groups) group = resources.give(group, of);
    }
    if (rest.type != CU_DEV_RESOURCE_TYPE_INVALID) rest = resources.give(rest, of);
    using Results = schema::FgResourceSplitResults;
    const size_t bytes = groups.size() * sizeof(CUdevResource);
    rpc::Responder::Frame frame(
        worker.responder(), request.header,
        schema::fixed_bytes<Results>() + schema::padded(bytes) + schema::padded(sizeof rest));
    auto results = frame.init<Results>();
    results.setGroups(as_data(groups.data(), bytes));
    results.setMade(made);
    results.setRest(as_data(&rest, sizeof rest));
    return frame.send(CUDA_SUCCESS);
  });
}

Status manual_cuDevResourceGenerateDesc(Worker& worker, const Request& request) {
  return decode_cuDevResourceGenerateDesc(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuDevResourceGenerateDesc);
    // A driver reads the first one in any case.
    if (given.nbResources == 0) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    std::vector<CUdevResource> ours;
    for (unsigned i = 0; i < given.nbResources; ++i) {
      const CUdevResource* const found = worker.parts().resources.find(given.resources[i]);
      if (found == nullptr)
        return answer(worker, request, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
      ours.push_back(*found);
    }
    CUdevResourceDesc description = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        worker.driver().cuDevResourceGenerateDesc(&description, ours.data(), given.nbResources));
    return answer(worker, request,
                  worker.add(rpc::HandleKind::kResourceDesc, given.phDesc_id,
                             handle_pointer(description), request.header.context));
  });
}

Status manual_fgGreenCreate(Worker& worker, const Request& request) {
  return decode_fgGreenCreate(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuGreenCtxCreate);
    FARGPU_NEEDS_DRIVER(cuCtxFromGreenCtx);
    FARGPU_NEEDS_DRIVER(cuGreenCtxDestroy);
    if (!is_created_context(given.context))
      return malformed("fgGreenCreate", "context id out of range");
    const DriverTable& driver = worker.driver();
    Contexts& contexts = worker.parts().contexts;
    if (given.dev < 0 || given.dev >= contexts.device_count() ||
        contexts.find(primary_context_of(given.dev)) == nullptr)
      return answer(worker, request, CUDA_ERROR_INVALID_CONTEXT);
    if (contexts.count() >= kMostContexts) return answer(worker, request, CUDA_ERROR_OUT_OF_MEMORY);
    CUgreenCtx green = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        driver.cuGreenCtxCreate(&green, given.desc, given.dev, given.flags));
    const auto id = static_cast<uint16_t>(given.context);
    CUcontext context = nullptr;
    CUresult result = driver.cuCtxFromGreenCtx(&context, green);
    if (result == CUDA_SUCCESS) result = contexts.bind(id, context, given.dev, green);
    if (result != CUDA_SUCCESS) {
      driver.cuGreenCtxDestroy(green);
      return answer(worker, request, result);
    }
    return answer(worker, request,
                  worker.add(rpc::HandleKind::kGreenContext, given.green_id, green, id));
  });
}

Status manual_fgGreenDestroy(Worker& worker, const Request& request) {
  return decode_fgGreenDestroy(worker, request, [&](const auto& given) -> Status {
    if (!is_created_context(given.context))
      return malformed("fgGreenDestroy", "context id out of range");
    const auto id = static_cast<uint16_t>(given.context);
    const CUgreenCtx green = worker.parts().contexts.green(id);
    if (green == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_CONTEXT);
    worker.parts().resources.context_ended(id);
    end_context_when_idle(
        LaterReply(worker, request), id,
        [&driver = worker.driver(), green](CUcontext) { return driver.cuGreenCtxDestroy(green); });
    return Status();
  });
}

}  // namespace fargpu::server
