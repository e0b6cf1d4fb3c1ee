// Streams that are known to be done without asking.
//
// When a thread has waited for a stream, by a wait or by a copy to the host, all that was in the
// stream is done. The stream stays so until something is sent: all that enters a stream is a frame.
// So the wait that programs make behind such a copy needs no server, if no frame has been sent in
// the session since. What another thread sends without having told this one of it has no order with
// the wait.
//
// Nor does the wait behind a small copy to the device, if its stream was done before and the worker
// lets it count as ended (copy::Order::kReturned).
//
// Known for the last such copy or wait of a thread. It answers one wait: a second one asks the
// server, which reports errors elsewhere in the context.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fargpu::client {

class Session;

// On the stack of a thread that is about to send a frame. `context`: wire id of the frame's.
class KnownDone {
 public:
  explicit KnownDone(Session& session);
  // It was a copy to the host that is over, and with it all that was in `stream`.
  void passed(uint16_t context, CUstream stream) const { note(context, stream, By::kRead); }
  // It was a wait, which is over.
  void waited(uint16_t context, CUstream stream) const { note(context, stream, By::kWait); }
  // It was a copy to the device, into a stream of which is_done() was true, and counts as ended.
  void returned(uint16_t context, CUstream stream) const { note(context, stream, By::kCopy); }

 private:
  enum class By : uint8_t { kWait, kRead, kCopy };
  void note(uint16_t context, CUstream stream, By by) const;

  Session& session_;
  const uint64_t sent_;    // frames before this one
  const uint64_t period_;  // of held streams
};

// Whether the calling thread knows that all in the stream is done, or counts as ended.
bool is_done(Session& session, uint16_t context, CUstream stream);
// The same for a wait, once.
bool is_known_done(Session& session, uint16_t context, CUstream stream);

}  // namespace fargpu::client
