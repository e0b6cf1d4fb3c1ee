#include "server/handover/await_ended.h"

#include "server/handover/worker_messages.h"

namespace fargpu::server {

void await_ended(int control, uint32_t sequence, transport::Deadline deadline) {
  if (!send_message(control, encode_await_ended(sequence), deadline).ok()) return;
  for (;;) {
    const auto message = receive_message(control, deadline);
    if (!message.ok()) return;
    if (message->is_reply() && kind_of(*message) == WorkerMessage::kAwaitEnded &&
        message->header.sequence == sequence)
      return;
  }
}

}  // namespace fargpu::server
