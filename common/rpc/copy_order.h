// CopyOrder: what may tell that a copy to the device has not ended when the call that sent it has.
// Both ends know it by its number.
#pragma once

namespace fargpu::rpc {

enum class CopyOrder : int {
  // The order of its stream, nothing else: an asynchronous copy, or the caller waits by itself.
  kStream = 0,
  // What is submitted later waits for it, in whichever stream, context or device of the session.
  kLaterWork = 1,
  // The same, and queries of streams and events answer as if it had ended, with all that was before
  // it in its stream: the call has told its caller so.
  kReturned = 2,
};

inline bool is_copy_order(int number) { return number >= 0 && number <= 2; }

}  // namespace fargpu::rpc
