// Device memory: what the ledger has to know, and copies inside the device.
#include <algorithm>
#include <utility>

#include "generated/server/memory_decode.h"
#include "server/manual/manual.h"

namespace fargpu::server {
namespace {

// The largest pitch alignment of current GPUs: what a pitched allocation is charged before the
// driver has chosen.
constexpr uint64_t kPitchAlignment = 512;

bool is_device_memory(CUmemorytype type) { return type == CU_MEMORYTYPE_DEVICE; }

// The copy names device memory on both sides and nothing else: the fields that could be pointers
// into this process are cleared.
template <typename Copy>
bool only_device_memory(Copy& copy) {
  if (!is_device_memory(copy.srcMemoryType) || !is_device_memory(copy.dstMemoryType)) return false;
  copy.srcHost = nullptr;
  copy.dstHost = nullptr;
  copy.srcArray = nullptr;
  copy.dstArray = nullptr;
  return true;
}

}  // namespace

namespace {

Status answer_memory_info(Worker& worker, const Request& request) {
  FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemGetInfo_v2(&free_bytes, &total_bytes));
  worker.parts().memory.settle_kept();
  if (const uint64_t limit = worker.parts().memory.limit(); limit != 0) {
    const uint64_t used = worker.parts().memory.used();
    total_bytes = std::min<uint64_t>(total_bytes, limit);
    free_bytes = std::min<uint64_t>(free_bytes, limit > used ? limit - used : 0);
  }
  rpc::Responder::Frame frame(worker.responder(), request.header,
                              schema::fixed_bytes<schema::CuMemGetInfoV2Results>());
  auto results = frame.init<schema::CuMemGetInfoV2Results>();
  results.setFree(free_bytes);
  results.setTotal(total_bytes);
  return frame.send(CUDA_SUCCESS);
}

}  // namespace

Status manual_cuMemGetInfo_v2(Worker& worker, const Request& request) {
  EndedSessions& ended = worker.parts().ended_sessions;
  if (!ended.any_others()) return answer_memory_info(worker, request);
  // A transport that fails is noticed by the executor.
  ended.wait([&worker, header = request.header] {
    (void)answer_memory_info(worker, {header, {}, {}});
  });
  return Status();
}

Status manual_cuMemAllocPitch_v2(Worker& worker, const Request& request) {
  return decode_cuMemAllocPitch_v2(worker, request, [&](const auto& given) -> Status {
    uint64_t estimate = 0;
    if (__builtin_add_overflow(given.WidthInBytes, kPitchAlignment - 1, &estimate) ||
        __builtin_mul_overflow(estimate / kPitchAlignment * kPitchAlignment, given.Height,
                               &estimate)) {
      return answer(worker, request, CUDA_ERROR_OUT_OF_MEMORY);
    }
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.charge(estimate));
    CUdeviceptr pointer = 0;
    size_t pitch = 0;
    const CUresult result = worker.driver().cuMemAllocPitch_v2(
        &pointer, &pitch, given.WidthInBytes, given.Height, given.ElementSizeBytes);
    if (result != CUDA_SUCCESS) {
      worker.refund(estimate);
      return answer(worker, request, result);
    }
    // Never more than there is: what the ledger knows may be registered with an adapter.
    const uint64_t whole = std::min<uint64_t>(estimate, pitch * given.Height);
    worker.refund(estimate - whole);
    worker.remember_allocation(pointer, whole);
    rpc::Responder::Frame frame(worker.responder(), request.header,
                                schema::fixed_bytes<schema::CuMemAllocPitchV2Results>());
    auto results = frame.init<schema::CuMemAllocPitchV2Results>();
    results.setDptr(pointer);
    results.setPPitch(pitch);
    return frame.send(CUDA_SUCCESS);
  });
}

Status manual_cuMemFree_v2(Worker& worker, const Request& request) {
  return decode_cuMemFree_v2(worker, request, [&](const auto& given) {
    const CUdeviceptr pointer = given.dptr;
    // The driver waits for everything that runs; what other threads of the client submit must go on
    // meanwhile.
    const LaterReply later(worker, request);
    // The adapter lets go of the memory before the driver takes it back, and after the copies that
    // are under way, which hold it too. The allocation is known by what it is from here on, not by
    // its address, which the driver may give out again before the answer is back on this thread.
    MemoryAccount::Free free = worker.parts().memory.begin_free(pointer);
    worker.parts().completion.off_thread_when_idle(
        request.header.context,
        [&driver = worker.driver(), pointer, registered = std::move(free.registered)]() mutable {
          registered.clear();
          return driver.cuMemFree_v2(pointer);
        },
        [later, free = free.id, pointer](CUresult result) {
          later.worker().parts().memory.end_free(free, pointer, result == CUDA_SUCCESS);
          later.send(result);
        });
    return Status();
  });
}

Status manual_cuMemcpy2DAsync_v2(Worker& worker, const Request& request) {
  return decode_cuMemcpy2DAsync_v2(worker, request, [&](const auto& given) {
    CUDA_MEMCPY2D& copy = *given.pCopy;
    if (!only_device_memory(copy)) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    return answer(worker, request, worker.driver().cuMemcpy2DAsync_v2(&copy, given.hStream));
  });
}

Status manual_cuMemcpy3DAsync_v2(Worker& worker, const Request& request) {
  return decode_cuMemcpy3DAsync_v2(worker, request, [&](const auto& given) {
    CUDA_MEMCPY3D& copy = *given.pCopy;
    if (!only_device_memory(copy)) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    copy.reserved0 = nullptr;
    copy.reserved1 = nullptr;
    return answer(worker, request, worker.driver().cuMemcpy3DAsync_v2(&copy, given.hStream));
  });
}

// The context fields hold 16-bit context ids instead of pointers.
Status manual_cuMemcpy3DPeerAsync(Worker& worker, const Request& request) {
  return decode_cuMemcpy3DPeerAsync(worker, request, [&](const auto& given) {
    CUDA_MEMCPY3D_PEER& copy = *given.pCopy;
    if (!only_device_memory(copy)) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    for (CUcontext* context : {&copy.srcContext, &copy.dstContext}) {
      const auto id = reinterpret_cast<uint64_t>(*context);
      *context =
          id <= UINT16_MAX ? worker.parts().contexts.find(static_cast<uint16_t>(id)) : nullptr;
      if (*context == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_CONTEXT);
    }
    return answer(worker, request, worker.driver().cuMemcpy3DPeerAsync(&copy, given.hStream));
  });
}

}  // namespace fargpu::server
