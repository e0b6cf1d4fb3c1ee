// Device memory: the table of allocations follows what the driver gives and takes; memsets are
// checked against it before they are sent.
#include "client/manual/apart.h"
#include "client/manual/common.h"
#include "client/memory/memory_source.h"
#include "client/memory/reserve.h"
#include "client/process/process.h"
#include "client/servers/cross_server_work.h"
#include "client/transfer/copy.h"
#include "client/transfer/exposure.h"
#include "client/transfer/managed.h"

namespace fargpu::client {
namespace {

// Work between servers that uses the memory at `pointer`.
void finish_work_with(CUdeviceptr pointer) {
  if (!CrossServerWork::any()) [[likely]]
    return;
  if (const auto region = Process::get().tables()->device_memory.find(pointer))
    CrossServerWork::finish_with({region->base, region->bytes});
}

// Takes the region out of the table, frees it by `call`, and puts it back when that failed. The
// other way round another thread could be given the same addresses in between, and its region would
// be taken out. The addresses stay reserved meanwhile; reservations are counted.
template <typename Call>
CUresult free_region(Session& session, CUdeviceptr pointer, Call&& call) {
  const auto region = session.device_memory.find(pointer);
  if (!region || region->base != pointer) return call();
  // Two threads that free it at once: the second one asks the driver, too.
  if (!session.device_memory.erase(pointer)) return call();
  const CUresult result = call();
  if (result != CUDA_SUCCESS && session.device_memory.insert(*region)) return result;
  if (region->reserved) release_reserved(region->base, region->bytes);
  return result;
}

CUresult check_set(const Session& session, const Endpoint& device, const copy::Shape& shape,
                   size_t alignment) {
  const copy::Rows& rows = device.rows;
  if (rows.address == 0 || rows.address % alignment != 0) return CUDA_ERROR_INVALID_VALUE;
  if (shape.height > 1 && rows.pitch % alignment != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t span = span_of(shape, rows);
  return span == 0 ? CUDA_ERROR_INVALID_VALUE : check_range(session, device, span);
}

// Checks, then calls call(session, context) unless there is nothing to set.
template <typename Call>
CUresult set(CUdeviceptr address, size_t width, size_t height, size_t pitch, size_t element,
             CUstream stream, Call&& call) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(width, element, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  const copy::Shape shape{bytes, height, 1};
  if (shape.empty()) return CUDA_SUCCESS;
  return at_memory(stream, address, 0, [&](const CallTarget& target) -> CUresult {
    const Endpoint device = device_end(target.session, {address, pitch});
    if (const CUresult result = check_set(target.session, device, shape, element);
        result != CUDA_SUCCESS) {
      return result;
    }
    if (const CUresult result = expose_operands(target.session, {address}); result != CUDA_SUCCESS)
      return result;
    const AskDriver asked(is_unknown(target.session, device));
    CUresult result = call(target.session, target.context);
    if (result == CUDA_SUCCESS) result = await_managed(target.session, stream, device, device);
    if (result != CUDA_SUCCESS) return result;
    return flush_first_use(target.session, device, span_of(shape, device.rows));
  });
}

bool is_managed(const Session& session, CUdeviceptr address) {
  if (!session.observers.any(Observers::kManagedMemory)) return false;
  const auto region = session.device_memory.find(address);
  return region && region->kind == MemoryKind::kManaged;
}

// The end of a call without a stream: host memory and managed memory are set when it returns.
CUresult finish_set(CUdeviceptr address, CUresult result) {
  if (result != CUDA_SUCCESS) return result;
  const CallTarget target = CallTarget::of_memory(address);
  const bool is_host = !target.session.host_memory.empty() && target.session.find_host(address);
  if (!is_host && !is_managed(target.session, address)) return CUDA_SUCCESS;
  return call_cuStreamSynchronize(target.session, target.context, nullptr);
}

// Marks the region that allocation_created has just entered as memory of a pool: no context owns
// it. `pool` 0: the default pool of the device, whose handle is asked for when it is needed.
void owned_by_pool(Session& session, CUdeviceptr pointer, uint64_t pool, int device,
                   int handle_types = CU_MEM_HANDLE_TYPE_NONE) {
  session.device_memory.change(pointer, [&](Region& region) {
    region.kind = MemoryKind::kPool;
    region.context = nullptr;
    region.device = device;
    region.owner = pool;
    region.handle_types = handle_types;
  });
}

bool is_graph_memory(const Session& session, CUdeviceptr address) {
  const auto region = session.device_memory.find(address);
  return region && region->of_graph && region->base == address;
}

// The pool that cuDeviceSetMemPool has made the device's; 0: its default pool.
uint64_t current_pool(Session& session, int device) {
  std::lock_guard lock(session.pools_mutex);
  const auto found = session.pools.find(device);
  if (found == session.pools.end()) return 0;
  const uint64_t pool = found->second.current_pool;
  return session.find(rpc::HandleKind::kMemPool, pool) != nullptr ? pool : 0;
}

// Device memory that `allocate` makes, apart from that of other servers. `give_back` frees what
// collided.
template <typename Allocate, typename GiveBack>
CUresult make_region(const char* name, Session& session, CUdeviceptr* dptr, Allocate&& allocate,
                     GiveBack&& give_back) {
  if (Process::get().session(1) == nullptr) [[likely]]
    return allocate();
  return allocate_apart(
      session, name, dptr, allocate, [&] { return is_own(session, *dptr); }, give_back);
}

}  // namespace

CUresult manual_cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  const CallTarget target = CallTarget::of_current();
  return make_region(
      "cuMemAlloc", target.session, dptr,
      [&] { return call_cuMemAlloc_v2(target.session, target.context, dptr, bytesize); },
      [&](CUdeviceptr each) { (void)call_cuMemFree_v2(target.session, target.context, each); });
}

CUresult manual_cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes,
                                   size_t Height, unsigned int ElementSizeBytes) {
  const CallTarget target = CallTarget::of_current();
  return make_region(
      "cuMemAllocPitch", target.session, dptr,
      [&] {
        return call_cuMemAllocPitch_v2(target.session, target.context, dptr, pPitch, WidthInBytes,
                                       Height, ElementSizeBytes);
      },
      [&](CUdeviceptr each) { (void)call_cuMemFree_v2(target.session, target.context, each); });
}

CUresult manual_cuMemFree_v2(CUdeviceptr dptr) {
  if (dptr == 0) return CUDA_SUCCESS;
  finish_work_with(dptr);
  const CallTarget target = CallTarget::of_memory(dptr);
  if (is_managed(target.session, dptr)) [[unlikely]]
    return free_managed(target.session, dptr);
  if (is_graph_memory(target.session, dptr)) [[unlikely]]
    return call_cuMemFree_v2(target.session, target.context, dptr);
  return free_region(target.session, dptr,
                     [&] { return call_cuMemFree_v2(target.session, target.context, dptr); });
}

CUresult manual_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  if (dptr == 0) return CUDA_SUCCESS;
  const CallTarget target = CallTarget::of(hStream);
  const auto region = target.session.device_memory.find(dptr);
  if (!region || region->session != &target.session) return CUDA_ERROR_INVALID_VALUE;
  if (region->kind == MemoryKind::kManaged) return CUDA_ERROR_NOT_SUPPORTED;
  if (region->opened != 0) return CUDA_ERROR_INVALID_VALUE;  // cuIpcCloseMemHandle ends it
  if (region->of_graph) [[unlikely]] {
    // Whether a launch has allocated it is the driver's to know.
    const CUresult result = call_cuMemFreeAsync(target.session, target.context, dptr, hStream);
    return result == CUDA_SUCCESS ? flush(target.session) : result;
  }
  // Only memory of cuMemAlloc and of pools may be freed so, by its first address.
  const bool is_plain = region->base == dptr &&
                        (region->kind == MemoryKind::kDevice || region->kind == MemoryKind::kPool);
  const AskDriver asked(!is_plain);
  return free_region(target.session, dptr, [&] {
    return call_cuMemFreeAsync(target.session, target.context, dptr, hStream);
  });
}

CUresult manual_cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  const CallTarget target = CallTarget::of(hStream);
  const Context* context = context_of(hStream);
  const int device = context == nullptr ? target.session.first_device : context->device;
  const uint64_t pool = current_pool(target.session, device);
  const CUresult result = make_region(
      "cuMemAllocAsync", target.session, dptr,
      [&] { return call_cuMemAllocAsync(target.session, target.context, dptr, bytesize, hStream); },
      [&](CUdeviceptr each) {
        (void)call_cuMemFreeAsync(target.session, target.context, each, hStream);
      });
  if (result == CUDA_SUCCESS) owned_by_pool(target.session, *dptr, pool, device);
  return result;
}

CUresult manual_cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                        CUstream hStream) {
  const CallTarget target = CallTarget::of(hStream);
  const CUresult result = make_region(
      "cuMemAllocFromPoolAsync", target.session, dptr,
      [&] {
        return call_cuMemAllocFromPoolAsync(target.session, target.context, dptr, bytesize, pool,
                                            hStream);
      },
      [&](CUdeviceptr each) {
        (void)call_cuMemFreeAsync(target.session, target.context, each, hStream);
      });
  if (result != CUDA_SUCCESS) return result;
  const auto id = reinterpret_cast<uint64_t>(pool);
  const auto* source =
      static_cast<MemorySource*>(target.session.find(rpc::HandleKind::kMemPool, id));
  owned_by_pool(target.session, *dptr, id,
                source == nullptr ? target.session.first_device : source->device.load(),
                source == nullptr ? CU_MEM_HANDLE_TYPE_NONE : source->handle_types.load());
  return CUDA_SUCCESS;
}

CUresult manual_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N,
                                CUstream hStream) {
  return set(dstDevice, N, 1, 0, 1, hStream, [&](Session& session, uint16_t context) {
    return call_cuMemsetD8Async(session, context, dstDevice, uc, N, hStream);
  });
}

CUresult manual_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N,
                                 CUstream hStream) {
  return set(dstDevice, N, 1, 0, 2, hStream, [&](Session& session, uint16_t context) {
    return call_cuMemsetD16Async(session, context, dstDevice, us, N, hStream);
  });
}

CUresult manual_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N,
                                 CUstream hStream) {
  return set(dstDevice, N, 1, 0, 4, hStream, [&](Session& session, uint16_t context) {
    return call_cuMemsetD32Async(session, context, dstDevice, ui, N, hStream);
  });
}

CUresult manual_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                                  size_t Width, size_t Height, CUstream hStream) {
  return set(dstDevice, Width, Height, dstPitch, 1, hStream,
             [&](Session& session, uint16_t context) {
               return call_cuMemsetD2D8Async(session, context, dstDevice, dstPitch, uc, Width,
                                             Height, hStream);
             });
}

CUresult manual_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                   size_t Width, size_t Height, CUstream hStream) {
  return set(dstDevice, Width, Height, dstPitch, 2, hStream,
             [&](Session& session, uint16_t context) {
               return call_cuMemsetD2D16Async(session, context, dstDevice, dstPitch, us, Width,
                                              Height, hStream);
             });
}

CUresult manual_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                   size_t Width, size_t Height, CUstream hStream) {
  return set(dstDevice, Width, Height, dstPitch, 4, hStream,
             [&](Session& session, uint16_t context) {
               return call_cuMemsetD2D32Async(session, context, dstDevice, dstPitch, ui, Width,
                                              Height, hStream);
             });
}

CUresult manual_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return finish_set(dstDevice, manual_cuMemsetD8Async(dstDevice, uc, N, nullptr));
}

CUresult manual_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return finish_set(dstDevice, manual_cuMemsetD16Async(dstDevice, us, N, nullptr));
}

CUresult manual_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return finish_set(dstDevice, manual_cuMemsetD32Async(dstDevice, ui, N, nullptr));
}

CUresult manual_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                                size_t Width, size_t Height) {
  return finish_set(dstDevice,
                    manual_cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, nullptr));
}

CUresult manual_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                 size_t Width, size_t Height) {
  return finish_set(dstDevice,
                    manual_cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, nullptr));
}

CUresult manual_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                 size_t Width, size_t Height) {
  return finish_set(dstDevice,
                    manual_cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, nullptr));
}

}  // namespace fargpu::client
