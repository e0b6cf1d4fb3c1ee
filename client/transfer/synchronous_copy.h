// SynchronousCopy: how the call of a synchronous copy to the device may end before the bytes are
// there, and when it must not.
//
// CUDA promises that a synchronous copy from pinned or registered memory has ended, with all that
// was before it in its stream, when the call returns. The call returns at once where nothing can
// tell: the worker lets later work wait for the copy, and queries of streams and events
// (server/stream/copy_fences.h). It waits where something can:
// - a function of the application, or a wait for a value, is in a stream: what stands behind it was
//   submitted before the copy, and the application lets it go on afterwards;
// - asynchronous copies from or to memory of the application are under way (OrderedCopies): their
//   bytes can tell a stream that the call has returned, and the application how far a stream is;
// - device code and this process share memory: a kernel that runs can be told through it, and work
//   before the copy may have written it;
// - (not supported yet: memory that another process reaches.)
// Of pageable memory CUDA promises less: what was before the copy in its stream has ended when the
// call returns, and its bytes may still be under way. So the call waits for what was before it, in
// the same cases. Of small copies (kSmallBytes) CUDA's guide promises not even that: such a call
// never waits. Later work waits for all of them.
//
// Made before the copy's frames are sent, finished afterwards, on the calling thread's stack. What
// other threads put into streams in between is noticed: either its frame comes after the copy's, or
// finish() sees that it was begun.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "client/entry/streams.h"

namespace fargpu::client {

class Session;

class SynchronousCopy {
 public:
  static constexpr uint64_t kSmallBytes = 64 << 10;
  // `wait`: the copy is a synchronous one. `source`: the address of its host side. `stream`: as the
  // application gave it. Needs a current context.
  SynchronousCopy(Session& session, bool wait, uint64_t source, uint64_t bytes, CUstream stream);
  // A CopyOrder for a frame of the copy. `last`: it is the last one, which counts for all.
  int order(bool last) const;
  // After the frames were sent. Needs a current context.
  CUresult finish();

 private:
  bool can_be_told() const;

  Session& session_;
  const CUstream stream_;
  enum class Kind : uint8_t { kAsynchronous, kSmallFromPageable, kFromPageable, kFromPinned } kind_;
  std::optional<StreamMark> before_;  // what is awaited, from pageable memory
  bool awaited_ = false;
  uint64_t host_call_period_ = 0;
  uint64_t memory_waits_ = 0;
};

}  // namespace fargpu::client
