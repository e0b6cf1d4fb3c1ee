// SynchronousCopy: how the call of a synchronous copy to the device may end before the bytes are
// there, and when it must not.
//
// CUDA promises that a synchronous copy from pinned or registered memory has ended, with all that
// was before it in its stream, when the call returns. The call returns at once where nothing can
// tell: the worker lets later work wait for the copy, and queries of streams and events
// (server/copy_fences.h). It waits where something can:
// - a function of the application, or a wait for a value, is in a stream: what stands behind it was
//   submitted before the copy, and the application lets it go on afterwards;
// - asynchronous copies from or to memory of the application are under way (OrderedCopies): their
//   bytes can tell a stream that the call has returned, and the application how far a stream is;
// - device code and this process share memory: a kernel that runs can be told through it, and work
//   before the copy may have written it;
// - (not supported yet: memory that another process reaches.)
// Of pageable memory CUDA promises less, and such a call never waits; later work does all the same.
//
// Made before the copy's frames are sent, finished afterwards, on the calling thread's stack. What
// other threads put into streams in between is noticed: either its frame comes after the copy's, or
// finish() sees that it was begun.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fargpu::client {

class Session;

class SynchronousCopy {
 public:
  // `wait`: the copy is a synchronous one. `source`: the address of its host side.
  SynchronousCopy(Session& session, bool wait, uint64_t source);
  // A CopyOrder for a frame of the copy. `last`: it is the last one, which counts for all.
  int order(bool last) const;
  // After the frames were sent, in `stream` as the application gave it. Needs a current context.
  CUresult finish(CUstream stream);

 private:
  bool can_be_told() const;

  Session& session_;
  enum class Kind : uint8_t { kAsynchronous, kFromPageable, kFromPinned } kind_;
  bool awaited_ = false;
  uint64_t host_call_period_ = 0;
  uint64_t memory_waits_ = 0;
};

}  // namespace fargpu::client
