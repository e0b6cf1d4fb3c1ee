// What an application says of managed memory: which work may use it, where it should be. An
// attachment decides whether the host waits for other work. The rest are hints, kept to be read
// back.
#include <algorithm>
#include <cstring>
#include <vector>

#include "client/manual/common.h"
#include "client/manual/memory/copies.h"
#include "client/transfer/managed.h"

namespace fargpu::client {
namespace {

using Allocation = ManagedMemory::Allocation;
using Attachment = ManagedMemory::Attachment;

constexpr size_t kMostAnswer = size_t{1} << 20;

int device_count() { return Process::get().device_count(); }

// use(allocation, from, until) for a range inside one managed allocation.
template <typename Use>
CUresult in_range(CUdeviceptr address, size_t bytes, Use&& use) {
  if (address == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_memory(address);
  const auto region = target.session.device_memory.find(address);
  if (!region || region->kind != MemoryKind::kManaged ||
      bytes > region->bytes - (address - region->base)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  target.session.managed.with(address, [&](Allocation& memory) {
    const uint64_t from = address - memory.address;
    result = use(memory, from, from + bytes);
  });
  return result;
}

CUresult check_stream(CUstream stream) {
  ResolvedStream resolved;
  return resolve_stream(CallTarget::of(stream).session, stream, &resolved);
}

CUresult check_ranges(const CUdeviceptr* addresses, const size_t* sizes, size_t count,
                      unsigned long long flags, CUstream stream) {
  if (addresses == nullptr || sizes == nullptr || count == 0 || flags != 0 ||
      !takes_batches(stream)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult result = check_stream(stream); result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = in_range(addresses[i], sizes[i],
                                     [](Allocation&, uint64_t, uint64_t) { return CUDA_SUCCESS; });
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult prefetch(CUdeviceptr address, size_t bytes, const CUmemLocation& location,
                  bool as_given = false) {
  return in_range(address, bytes, [&](Allocation& memory, uint64_t from, uint64_t until) {
    memory.advice.prefetched(from, until, location, as_given);
    return CUDA_SUCCESS;
  });
}

// `place`: a CUmemLocation, or the CUdevice of CUDA's first interface.
template <typename Place>
CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, const Place& place) {
  return in_range(address, bytes, [&](Allocation& memory, uint64_t from, uint64_t until) {
    return memory.advice.advise(from, until, advice, place, device_count());
  });
}

}  // namespace

CUresult manual_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                       unsigned int flags) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  if (dptr == 0 || (flags == CU_MEM_ATTACH_SINGLE && hStream == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(hStream);
  ResolvedStream stream;
  if (const CUresult result = resolve_stream(target.session, hStream, &stream);
      result != CUDA_SUCCESS)
    return result;
  const auto region = target.session.device_memory.find(dptr);
  // Only a whole allocation is attached.
  if (!region || region->kind != MemoryKind::kManaged || region->session != &target.session ||
      region->base != dptr || (length != 0 && length != region->bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  target.session.managed.with(dptr, [&](Allocation& memory) {
    // Variables share pages, so these stay everybody's.
    if (!memory.extents.empty()) return;
    memory.attachment = flags == CU_MEM_ATTACH_SINGLE ? Attachment::kStream
                        : flags == CU_MEM_ATTACH_HOST ? Attachment::kHost
                                                      : Attachment::kGlobal;
  });
  return CUDA_SUCCESS;
}

CUresult manual_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                               CUmemLocation location) {
  return advise(devPtr, count, advice, location);
}

CUresult manual_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                            CUdevice device) {
  return advise(devPtr, count, advice, device);
}

CUresult manual_cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                       CUdeviceptr devPtr, size_t count) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The answer may be wanted in managed memory, which must not be touched under the lock.
  std::vector<std::byte> answer(std::min(dataSize, kMostAnswer));
  if (answer.size() < dataSize) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      in_range(devPtr, count, [&](const Allocation& memory, uint64_t from, uint64_t until) {
        return memory.advice.get(from, until, attribute, answer.data(), answer.size());
      });
  if (result == CUDA_SUCCESS) std::memcpy(data, answer.data(), answer.size());
  return result;
}

CUresult manual_cuMemRangeGetAttributes(void** data, size_t* dataSizes,
                                        CUmem_range_attribute* attributes, size_t numAttributes,
                                        CUdeviceptr devPtr, size_t count) {
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < numAttributes; ++i) {
    const CUresult result =
        manual_cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult manual_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                      unsigned int flags, CUstream hStream) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_stream(hStream);
  if (result == CUDA_SUCCESS) result = advice::check_location(location, device_count());
  return result == CUDA_SUCCESS ? prefetch(devPtr, count, location) : result;
}

CUresult manual_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                   CUstream hStream) {
  return manual_cuMemPrefetchAsync_v2(devPtr, count, advice::location_of(dstDevice), 0, hStream);
}

CUresult manual_cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                        CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                        size_t numPrefetchLocs, unsigned long long flags,
                                        CUstream hStream) {
  const advice::Prefetches prefetches{prefetchLocs, prefetchLocIdxs, numPrefetchLocs};
  CUresult result = check_ranges(dptrs, sizes, count, flags, hStream);
  if (result == CUDA_SUCCESS) result = prefetches.check(count, device_count());
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; ++i)
    result = prefetch(dptrs[i], sizes[i], prefetches.of(i), true);
  return result;
}

// What memory holds after it was discarded is not defined; it keeps what it has.
CUresult manual_cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                       unsigned long long flags, CUstream hStream) {
  return check_ranges(dptrs, sizes, count, flags, hStream);
}

}  // namespace fargpu::client
