// CopyOrder: which later work must wait for a copy to the device whose call may return before the
// bytes have arrived. The number is part of the protocol.
#pragma once

namespace fargpu::rpc {

enum class CopyOrder : int {
  // Only later work in its own stream: an asynchronous copy, or a caller that waits by itself.
  kStream = 0,
  // All work that is submitted later, in any stream, context or device of the session.
  kLaterWork = 1,
  // The same. In addition, queries of streams and events report the copy, and all work before it in
  // its stream, as complete: the call has returned, which told its caller so.
  kReturned = 2,
};

inline bool is_copy_order(int number) { return number >= 0 && number <= 2; }

}  // namespace fargpu::rpc
