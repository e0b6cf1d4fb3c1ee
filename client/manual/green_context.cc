// Green contexts: a part of a primary context that has streams of its own. The client keeps it as a
// Context with a home (client/object/context.h).
//
// The multiprocessors that it is made from are the driver's to describe. The worker keeps each
// CUdevResource that the driver has given; the application gets one whose padding has the worker's
// number of it and our session's.
#include "client/manual/green_context.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "client/entry/object_ends.h"
#include "client/manual/common.h"
#include "client/manual/context_end.h"

namespace fargpu::client {
namespace {

// The worker's number is in the first eight bytes.
constexpr size_t kSessionAt = 8;

void note_session(const Session& session, CUdevResource* resource) {
  const uint32_t number = session.number;
  std::memcpy(resource->_internal_padding + kSessionAt, &number, sizeof number);
}

// nullptr: it is of no session.
Session* session_of(const CUdevResource& resource) {
  uint32_t number = 0;
  std::memcpy(&number, resource._internal_padding + kSessionAt, sizeof number);
  return Process::get().session(number);
}

// The rest is a call for `session`, which no object names.
uint16_t frame_context(const Session& session) {
  const Context* const current = current_context();
  return current != nullptr && current->session == &session ? current->wire_id : uint16_t{0};
}

CUresult end_green(Context& green) {
  begin_context_end(green);
  const CUresult result = wire::fgGreenDestroy(*green.session, 0, green.wire_id);
  end_object(*green.session, green.green);
  end_context(green, ContextState::kDestroyed);
  return result;
}

}  // namespace

Context* find_green(CUgreenCtx handle) {
  const auto id = reinterpret_cast<uint64_t>(handle);
  const auto* const found = static_cast<const GreenContext*>(
      Process::get().tables()->handles.find(rpc::HandleKind::kGreenContext, id));
  if (found == nullptr || found->converted == nullptr || !found->converted->usable())
    return nullptr;
  return found->converted;
}

CUresult manual_cuDeviceGetDevResource(CUdevice device, CUdevResource* resource,
                                       CUdevResourceType type) {
  const CallTarget target = CallTarget::of_device(device);
  const CUresult result =
      call_cuDeviceGetDevResource(target.session, target.context, device, resource, type);
  if (result == CUDA_SUCCESS) note_session(target.session, resource);
  return result;
}

CUresult manual_cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource,
                                    CUdevResourceType type) {
  const CallTarget target = CallTarget::of(hCtx);
  const CUresult result =
      call_cuCtxGetDevResource(target.session, target.context, hCtx, resource, type);
  if (result == CUDA_SUCCESS) note_session(target.session, resource);
  return result;
}

CUresult manual_cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource,
                                         CUdevResourceType type) {
  Context* const green = find_green(hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return manual_cuCtxGetDevResource(green->handle(), resource, type);
}

CUresult manual_cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                            const CUdevResource* input, CUdevResource* remaining,
                                            unsigned int useFlags, unsigned int minCount) {
  constexpr unsigned kMostGroups = 1024;  // more than a device has multiprocessors
  if (nbGroups == nullptr || input == nullptr || (result != nullptr && *nbGroups == 0))
    return CUDA_ERROR_INVALID_VALUE;
  Session* const session = session_of(*input);
  if (session == nullptr || input->type != CU_DEV_RESOURCE_TYPE_SM)
    return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const bool query = result == nullptr;
  // The groups of a query are counted only.
  std::vector<CUdevResource> counted(query ? kMostGroups : 0);
  const unsigned wanted = query ? kMostGroups : std::min(*nbGroups, kMostGroups);
  CUdevResource rest{};
  unsigned made = 0;
  const CUresult answer =
      wire::fgResourceSplit(*session, frame_context(*session), query ? counted.data() : result,
                            wanted, &made, input, &rest, useFlags, minCount, query ? 1 : 0);
  if (answer != CUDA_SUCCESS) return answer;
  *nbGroups = made;
  if (query) return CUDA_SUCCESS;
  for (unsigned i = 0; i < made; ++i) note_session(*session, &result[i]);
  if (rest.type != CU_DEV_RESOURCE_TYPE_INVALID) note_session(*session, &rest);
  if (remaining != nullptr) *remaining = rest;
  return CUDA_SUCCESS;
}

CUresult manual_cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                          unsigned int nbResources) {
  constexpr unsigned kMostResources = 1024;
  if (phDesc == nullptr || resources == nullptr || nbResources == 0)
    return CUDA_ERROR_INVALID_VALUE;
  Session* const session = session_of(resources[0]);
  for (unsigned i = 0; i < nbResources && i < kMostResources; ++i) {
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  }
  if (session == nullptr) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  if (nbResources > kMostResources) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  for (unsigned i = 1; i < nbResources; ++i) {
    if (session_of(resources[i]) != session) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  return call_cuDevResourceGenerateDesc(*session, frame_context(*session), phDesc, resources,
                                        nbResources);
}

CUresult manual_cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                                 unsigned int flags) {
  if (phCtx == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  Session* const session = Process::get().session_of_device(dev);
  if (session == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (desc == nullptr) {  // all of the device, as natively
    CUdevResource all{};
    CUresult result = manual_cuDeviceGetDevResource(dev, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (result == CUDA_SUCCESS) result = manual_cuDevResourceGenerateDesc(&desc, &all, 1);
    if (result != CUDA_SUCCESS) return result;
  }
  CUcontext primary = nullptr;
  if (const CUresult result = manual_cuDevicePrimaryCtxRetain(&primary, dev);
      result != CUDA_SUCCESS)
    return result;
  Context& home = *session->contexts.find(primary);
  Context* const made = session->contexts.create(dev, session->device(dev)->worker_ordinal,
                                                 home.flags.load(), session->owner(), &home);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (made != nullptr) {
    const ContextScope scope(made);  // the handle ends with its home
    result = call_fgGreenCreate(*session, home.wire_id, phCtx, desc, dev, flags, made->wire_id);
  }
  if (result != CUDA_SUCCESS) {
    if (made != nullptr) session->contexts.retire(*made, ContextState::kDestroyed);
    (void)manual_cuDevicePrimaryCtxRelease_v2(dev);
    return result;
  }
  made->green = reinterpret_cast<uint64_t>(*phCtx);
  auto* const record =
      static_cast<GreenContext*>(session->find(rpc::HandleKind::kGreenContext, made->green));
  session->contexts.activate(*made, home.flags.load());
  if (record != nullptr) record->converted = made;
  return CUDA_SUCCESS;
}

CUresult manual_cuGreenCtxDestroy(CUgreenCtx hCtx) {
  Context* const green = find_green(hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = end_green(*green);
  const CUresult released = manual_cuDevicePrimaryCtxRelease_v2(green->device);
  return result != CUDA_SUCCESS ? result : released;
}

CUresult manual_cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* const green = find_green(hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *pContext = green->handle();
  return CUDA_SUCCESS;
}

CUresult manual_cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  if (greenCtxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* const green = greenCtx == nullptr ? current_green() : find_green(greenCtx);
  if (green == nullptr || !green->usable()) return CUDA_ERROR_INVALID_CONTEXT;
  *greenCtxId = green->unique_id.load();
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
