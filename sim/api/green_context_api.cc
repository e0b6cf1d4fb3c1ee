// Green contexts, and the multiprocessors that they are made from.
#include <algorithm>

#include "sim/context/capture.h"
#include "sim/context/green_context.h"
#include "sim/context/primary_context.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

// What both halves of a green context's handle find. Null: there is none, or it was destroyed.
template <typename Handle>
std::shared_ptr<GreenContext> find_green(Driver& driver, Handle handle) {
  auto green = driver.registry().find<GreenContext>(handle);
  return green && green->alive ? green : nullptr;
}

// Whether a stream of it is being captured; such captures end.
bool captured(CUgreenCtx handle) {
  Captures& captures = Captures::get();
  if (!captures.any() || !Driver::initialized()) return false;
  const auto green = find_green(Driver::get(), handle);
  const std::lock_guard lock(captures.mutex());
  return green && captures.of_green(*green, true);
}

CUresult put(const Partition& partition, CUdevResource* resource, CUdevResourceType type) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = to_resource(partition);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CUDAAPI cuDeviceGetDevResource(CUdevice device, CUdevResource* resource,
                                        CUdevResourceType type) {
  return with_device(device, [&](Device& found) { return put(whole(found), resource, type); });
}

CUresult CUDAAPI cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource,
                                     CUdevResourceType type) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (const auto green = find_green(driver, hCtx)) return put(green->partition, resource, type);
    const auto context = find_context(hCtx);
    if (!context || !context->alive()) return CUDA_ERROR_INVALID_CONTEXT;
    return put(whole(context->device()), resource, type);
  });
}

CUresult CUDAAPI cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource,
                                          CUdevResourceType type) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto green = find_green(driver, hCtx);
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    return put(green->partition, resource, type);
  });
}

CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                             const CUdevResource* input, CUdevResource* remaining,
                                             unsigned int useFlags, unsigned int minCount) {
  return with_driver([&](Driver&) -> CUresult {
    // One way at most; drivers do not look at other flags.
    constexpr unsigned kBoth = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                               CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    if (nbGroups == nullptr || input == nullptr || (useFlags & kBoth) == kBoth ||
        (result != nullptr && *nbGroups == 0))
      return CUDA_ERROR_INVALID_VALUE;
    Partition whole_input;
    if (!from_resource(*input, &whole_input)) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (whole_input.split != 0 || input->sm.smCount != whole_input.count ||
        minCount > whole_input.count)
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned size = 0;
    const unsigned groups = split_groups(whole_input, useFlags, minCount,
                                         result == nullptr ? UINT32_MAX : *nbGroups, &size);
    *nbGroups = groups;
    if (result == nullptr) return CUDA_SUCCESS;
    Partition part = whole_input;
    part.split = next_split();
    part.min_size = part.alignment = 0;  // it is not to be split again
    part.count = size;
    for (unsigned i = 0; i < groups; ++i, part.first += size) result[i] = to_resource(part);
    part.count = whole_input.count - groups * size;
    if (remaining != nullptr) *remaining = to_resource(part);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                           unsigned int nbResources) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (phDesc == nullptr || resources == nullptr || nbResources == 0)
      return CUDA_ERROR_INVALID_VALUE;
    Partition all;
    for (unsigned i = 0; i < nbResources; ++i) {
      Partition each;
      if (!from_resource(resources[i], &each)) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
      if (resources[i].sm.smCount != each.count || (i > 0 && each.device != all.device))
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
      const unsigned before = i == 0 ? 0 : all.count;
      all = each;
      all.count += before;
    }
    const Partition device = whole(*driver.device(all.device));
    all.count = std::min(all.count, device.count);
    all.split = 0;  // a green context's resources may be split
    all.min_size = device.min_size;
    all.alignment = device.alignment;
    auto description = std::make_shared<ResourceDescription>(ResourceDescription{all});
    *phDesc = to_handle<CUdevResourceDesc>(driver.registry().add(std::move(description), 0));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                                  unsigned int flags) {
  return with_device(dev, [&](Device& device) -> CUresult {
    Registry& registry = Driver::get().registry();
    const auto description = registry.find<ResourceDescription>(desc);
    if (phCtx == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM ||
        (desc != nullptr && !description))
      return CUDA_ERROR_INVALID_VALUE;
    // Without a description it has all of the device.
    const Partition partition = description ? description->partition : whole(device);
    if (partition.device != device.ordinal()) return CUDA_ERROR_INVALID_DEVICE;
    const auto primary = PrimaryContext::of(device).retain();
    if (!primary) return device.without_context();
    auto green = std::make_shared<GreenContext>();
    green->id = next_split();
    green->primary = primary;
    green->partition = partition;
    green->default_stream = primary->create_stream(CU_STREAM_NON_BLOCKING, 0, green);
    green->handle = registry.add(green, 0);
    ++PrimaryContext::of(device).greens;
    *phCtx = to_handle<CUgreenCtx>(green->handle);
    return CUDA_SUCCESS;
  });
}

// The record stays, so that the handle is known as that of a destroyed one. Streams that were made
// in it are refused from now on.
CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx hCtx) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto green = find_green(driver, hCtx);
    if (!green || !green->alive.exchange(false)) return CUDA_ERROR_INVALID_CONTEXT;
    PrimaryContext& primary = PrimaryContext::of(green->primary->device());
    (void)green->primary->synchronize(green.get());
    green->primary->forget_stream(green->default_stream);
    green->default_stream = nullptr;
    green->primary = nullptr;
    --primary.greens;
    return primary.release();
  });
}

CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto green = find_green(driver, hCtx);
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    *pContext = to_handle<CUcontext>(green->handle);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  if (captured(hCtx)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return cuCtxRecordEvent(reinterpret_cast<CUcontext>(hCtx), hEvent);
}

CUresult CUDAAPI cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  if (captured(hCtx)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return cuCtxWaitEvent(reinterpret_cast<CUcontext>(hCtx), hEvent);
}

CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                        int priority) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (phStream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    const auto green = find_green(driver, greenCtx);
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    Context& primary = *green->primary;
    auto stream = primary.create_stream(flags, std::clamp(priority, kGreatestPriority, 0), green);
    *phStream = to_handle<CUstream>(driver.registry().add(std::move(stream), primary.id()));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (greenCtxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto green = greenCtx == nullptr ? current_green() : find_green(driver, greenCtx);
    if (!green || !green->alive) return CUDA_ERROR_INVALID_CONTEXT;
    *greenCtxId = green->id;
    return CUDA_SUCCESS;
  });
}
