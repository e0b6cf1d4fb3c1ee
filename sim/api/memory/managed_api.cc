// Managed memory: memory of this process, which kernels use as it is, so it is coherent at any
// time. What is advised about it and where it was prefetched is kept to be read back.
#include <sys/mman.h>

#include "common/advice/range_advice.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

constexpr size_t kPage = 4096;

int device_count(const Driver& driver) { return static_cast<int>(driver.devices().size()); }

// use(advice, from, until) for a range inside one managed allocation.
template <typename Use>
CUresult in_range(Driver& driver, CUdeviceptr address, size_t bytes, Use&& use) {
  if (address == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  driver.allocations().for_range(address, 1, [&](Allocation& allocation) {
    if (allocation.kind != Allocation::Kind::kManaged || bytes > allocation.end() - address)
      return false;
    // A variable's comes with its first use.
    if (allocation.advice == nullptr)
      allocation.advice = std::make_shared<fargpu::advice::RangeAdvice>();
    const uint64_t from = address - allocation.base;
    result = use(*allocation.advice, from, from + bytes);
    return true;
  });
  return result;
}

CUresult prefetch(Driver& driver, CUdeviceptr address, size_t bytes, const CUmemLocation& location,
                  bool as_given = false) {
  return in_range(driver, address, bytes,
                  [&](fargpu::advice::RangeAdvice& advice, uint64_t from, uint64_t until) {
                    advice.prefetched(from, until, location, as_given);
                    return CUDA_SUCCESS;
                  });
}

// For a batch: body(Driver&) when the ranges are right.
template <typename Body>
CUresult with_ranges(const CUdeviceptr* addresses, const size_t* sizes, size_t count,
                     unsigned long long flags, CUstream stream, Body&& body) {
  if (addresses == nullptr || sizes == nullptr || count == 0 || flags != 0 || stream == nullptr ||
      stream == CU_STREAM_LEGACY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return with_stream(stream, [&](Context&, const std::shared_ptr<Stream>&) -> CUresult {
    Driver& driver = Driver::get();
    for (size_t i = 0; i < count; ++i) {
      const CUresult result =
          in_range(driver, addresses[i], sizes[i],
                   [](fargpu::advice::RangeAdvice&, uint64_t, uint64_t) { return CUDA_SUCCESS; });
      if (result != CUDA_SUCCESS) return result;
    }
    return body(driver);
  });
}

CUresult get_attribute(Driver& driver, void* data, size_t size, CUmem_range_attribute attribute,
                       CUdeviceptr address, size_t bytes) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return in_range(driver, address, bytes,
                  [&](const fargpu::advice::RangeAdvice& advice, uint64_t from, uint64_t until) {
                    return advice.get(from, until, attribute, data, size);
                  });
}

// `place`: a CUmemLocation, or the CUdevice of CUDA's first interface.
template <typename Place>
CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, const Place& place) {
  return with_context([&](Context&) {
    Driver& driver = Driver::get();
    return in_range(driver, address, bytes,
                    [&](fargpu::advice::RangeAdvice& kept, uint64_t from, uint64_t until) {
                      return kept.advise(from, until, advice, place, device_count(driver));
                    });
  });
}

}  // namespace

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return with_context([&](Context& context) -> CUresult {
    if (dptr == nullptr || bytesize == 0 ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!context.device().memory().charge(bytesize)) return CUDA_ERROR_OUT_OF_MEMORY;
    void* memory = mmap(nullptr, (bytesize + kPage - 1) / kPage * kPage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      context.device().memory().refund(bytesize);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    madvise(memory, bytesize, MADV_DONTFORK);  // a forked child has none of it
    Allocation allocation = owned_by(context);
    allocation.base = reinterpret_cast<uint64_t>(memory);
    allocation.bytes = bytesize;
    allocation.kind = Allocation::Kind::kManaged;
    allocation.flags = flags;
    allocation.advice = std::make_shared<fargpu::advice::RangeAdvice>();
    Driver::get().allocations().insert(allocation);
    *dptr = allocation.base;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                        unsigned int flags) {
  if (!Driver::initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  if (dptr == 0 || (flags == CU_MEM_ATTACH_SINGLE && hStream == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  return with_stream(hStream, [&](Context&, const std::shared_ptr<Stream>&) {
    const auto found = Driver::get().allocations().find(dptr);
    const bool whole = found && found->kind == Allocation::Kind::kManaged && found->base == dptr &&
                       (length == 0 || length == found->bytes);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                                CUmemLocation location) {
  return advise(devPtr, count, advice, location);
}

CUresult CUDAAPI cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                             CUdevice device) {
  return advise(devPtr, count, advice, device);
}

CUresult CUDAAPI cuMemRangeGetAttribute(void* data, size_t dataSize,
                                        CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                        size_t count) {
  return with_context([&](Context&) {
    return get_attribute(Driver::get(), data, dataSize, attribute, devPtr, count);
  });
}

CUresult CUDAAPI cuMemRangeGetAttributes(void** data, size_t* dataSizes,
                                         CUmem_range_attribute* attributes, size_t numAttributes,
                                         CUdeviceptr devPtr, size_t count) {
  return with_context([&](Context&) -> CUresult {
    if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0)
      return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numAttributes; ++i) {
      const CUresult result =
          get_attribute(Driver::get(), data[i], dataSizes[i], attributes[i], devPtr, count);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                       unsigned int flags, CUstream hStream) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return with_stream(hStream, [&](Context&, const std::shared_ptr<Stream>&) {
    Driver& driver = Driver::get();
    const CUresult result = fargpu::advice::check_location(location, device_count(driver));
    return result == CUDA_SUCCESS ? prefetch(driver, devPtr, count, location) : result;
  });
}

CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                    CUstream hStream) {
  return cuMemPrefetchAsync_v2(devPtr, count, fargpu::advice::location_of(dstDevice), 0, hStream);
}

CUresult CUDAAPI cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                         CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                         size_t numPrefetchLocs, unsigned long long flags,
                                         CUstream hStream) {
  return with_ranges(dptrs, sizes, count, flags, hStream, [&](Driver& driver) {
    const fargpu::advice::Prefetches prefetches{prefetchLocs, prefetchLocIdxs, numPrefetchLocs};
    CUresult result = prefetches.check(count, device_count(driver));
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; ++i)
      result = prefetch(driver, dptrs[i], sizes[i], prefetches.of(i), true);
    return result;
  });
}

CUresult CUDAAPI cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                        unsigned long long flags, CUstream hStream) {
  return with_ranges(dptrs, sizes, count, flags, hStream, [](Driver&) { return CUDA_SUCCESS; });
}

CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                                   CUmemLocation* prefetchLocs,
                                                   size_t* prefetchLocIdxs, size_t numPrefetchLocs,
                                                   unsigned long long flags, CUstream hStream) {
  return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                                 numPrefetchLocs, flags, hStream);
}
