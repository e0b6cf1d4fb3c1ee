#include "client/manual/memory/copies.h"

#include <mutex>

#include "common/base/log.h"

namespace fargpu::client {

// What a copy between contexts must be ordered behind, and what must be ordered behind it: the
// default streams of both. The worker's streams of different contexts do not wait for each other,
// so this waits.
CUresult wait_for_both(Session& session, const Context* dst, const Context* src) {
  for (const Context* context : {dst, src}) {
    if (context == nullptr || !context->usable()) continue;
    if (const CUresult result = call_cuCtxSynchronize(session, context->wire_id);
        result != CUDA_SUCCESS) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

const Context* owner_of(const Session& session, const Endpoint& end) {
  if (!end.region) return nullptr;
  return end.region->context != nullptr ? end.region->context
                                        : session.contexts.primary(end.region->device);
}

bool are_apart(CUarray dst, CUarray src, CUdeviceptr dst_address, CUdeviceptr src_address) {
  const Session* one = nullptr;
  bool apart = false;
  const auto add = [&](const Session* session) {
    apart |= one != nullptr && session != nullptr && session != one;
    if (session != nullptr) one = session;
  };
  for (const CUarray array : {dst, src}) {
    const Context* const context = context_of_handle(array);
    if (array != nullptr && context != nullptr) add(context->session);
  }
  for (const CUdeviceptr address : {dst_address, src_address}) {
    if (const auto region = Process::get().tables()->device_memory.find(address))
      add(region->session);
  }
  static std::once_flag said;
  if (apart)
    std::call_once(said,
                   [] { log::warn("CUDA arrays are not copied from one server to another"); });
  return apart;
}

CUresult copy_arrays(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                     const copy::Shape& shape, CUstream stream) {
  const auto owner = [&target](const Endpoint& end) -> const Context* {
    return end.array != nullptr ? end.array->context : owner_of(target.session, end);
  };
  return between_contexts(target.session, owner(dst), owner(src), stream,
                          [&] { return copy_inside(target, dst, src, shape, stream); });
}

}  // namespace fargpu::client
