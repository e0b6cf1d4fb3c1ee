#include "client/entry/own_streams.h"

#include "client/entry/call_target.h"
#include "client/entry/new_stream.h"
#include "generated/client/wire/stream.h"

namespace fargpu::client {

CUresult OwnStreams::in(Context& context, CUstream* stream) {
  std::lock_guard lock(mutex_);
  // In this order: a stream that is made while the context ends is of an epoch that is over.
  const uint32_t epoch = context.epoch.load();
  if (!context.usable()) return CUDA_ERROR_INVALID_CONTEXT;
  std::erase_if(made_,
                [&](const Own& own) { return own.context == &context && own.epoch != epoch; });
  for (const Own& own : made_) {
    if (own.context != &context) continue;
    *stream = own.stream;
    return CUDA_SUCCESS;
  }
  const ContextScope scope(&context);
  const CUresult result = make_stream(
      *context.session, context, {.flags = CU_STREAM_NON_BLOCKING}, stream, [&](uint64_t id) {
        return wire::cuStreamCreate(*context.session, context.wire_id, id, CU_STREAM_NON_BLOCKING);
      });
  if (result == CUDA_SUCCESS) made_.push_back({&context, epoch, *stream});
  return result;
}

}  // namespace fargpu::client
