// What a generated wire half does for a call that works and queues, where the message is made by
// hand.
#pragma once

#include "client/call/call.h"
#include "client/call/client_support.h"
#include "client/call/submission.h"
#include "client/entry/call_target.h"
#include "client/process/session.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {

// `body(stream)`: the message, given the stream's id on the wire; it has bytes(). Any thread.
template <typename Body>
CUresult send_work(const CallTarget& target, uint16_t opcode, CUstream stream, Body&& body) {
  if (!target.session.knows(opcode)) [[unlikely]]
    return target.session.unknown(schema::opcode_name(opcode));
  return without_exception([&]() -> CUresult {
    const Submission work(target.session, target.context, stream,
                          Submission::kHostMemory | Submission::kQueuePlace);
    if (work.result() != CUDA_SUCCESS) return work.result();
    const auto& message = body(work.stream());
    int32_t result = CUDA_SUCCESS;
    const Status sent =
        target.session.channel().send_body(opcode, target.context, message.bytes(), &result);
    return sent.ok() ? static_cast<CUresult>(result) : from_status(sent);
  });
}

}  // namespace fargpu::client
