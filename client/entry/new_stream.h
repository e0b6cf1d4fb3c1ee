// How streams are made while functions of the application may run. Nothing else makes any.
//
// A driver may wait for such functions when it makes a stream (580 does at times), and a worker's
// executor must not wait there. So the calling thread waits until no function is left, for
// HostCalls::kPatience at most; functions of any device that come later wait for the stream. When
// functions are left, the worker has a stream in stock, or makes one beside its executor
// (server/stream/stream_stock.h). Any thread.
#pragma once

#include <cuda.h>

#include "client/entry/to_wire.h"
#include "client/process/session.h"
#include "generated/client/wire/internal.h"
#include "generated/schema/opcodes.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::client {

struct NewStream {
  schema::StreamKind kind = schema::kPlainStream;
  unsigned flags = 0;
  int priority = 0;
};

// `message(id)`: lets the worker's executor make the same stream.
template <typename Message>
CUresult make_stream(Session& session, const Context& context, const NewStream& wanted,
                     CUstream* stream, Message&& message) {
  return make_object(session, rpc::HandleKind::kStream, stream, [&](uint64_t id) {
    constexpr uint16_t kEveryDevice = 0;
    HostCalls& functions = session.host_calls;
    if (functions.begin_short_load(kEveryDevice)) {
      const CUresult result = message(id);
      functions.end_load(kEveryDevice);
      return result;
    }
    if (!session.knows(schema::op_fgStreamCreate)) return message(id);
    return wire::fgStreamCreate(session, context.wire_id, wanted.kind, wanted.flags,
                                wanted.priority, id);
  });
}

}  // namespace fargpu::client
