// SynchronousCopy: when the call of a synchronous copy to the device may return before the bytes
// are there, and when it must wait.
//
// CUDA promises that a synchronous copy from pinned or registered memory, and everything before it
// in its stream, has ended when the call returns. The call returns early where nothing can observe
// the difference: the worker makes later work wait for the copy, and makes queries of streams and
// events count it as done (server/stream/copy_fences.h). The call waits where something can observe
// it:
// - a host function of the application, or a wait for a value, is in a stream: work behind it was
//   submitted before the copy, and the application may release it afterwards;
// - asynchronous copies from or to memory of the application are under way (OrderedCopies): their
//   bytes can tell a stream that the call has returned, or the application how far a stream is;
// - device code and this process share memory: a running kernel can be told through it, and work
//   before the copy may have written it;
// - other processes have memory of this session, or it has some of theirs.
// CUDA promises less for pageable memory: what was before the copy in its stream has ended when the
// call returns, but the bytes may still be under way. So in the same cases the call waits only for
// what was before it. For small copies (copy::kTakenInCall) CUDA's guide does not promise even that, and
// the call never waits. Later work waits for all of these copies. While memory is shared with other
// processes the call waits for the whole copy: they may look as soon as they are told.
//
// What fargpu pushes by itself, in a stream of its own, is awaited by all later work and by nothing
// here (client/managed/managed_memory.h).
//
// An object is made on the calling thread's stack before the copy's frames are sent, and finished
// afterwards. Work that other threads submit in between is not missed: either its frame comes after
// the copy's frames, or finish() sees that its submission has begun.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "client/entry/streams.h"
#include "common/copy/copy.h"

namespace fargpu::client {

class Session;
struct Transfer;

class SynchronousCopy {
 public:
  // Also of an asynchronous copy, which nothing has to be done for. Needs a current context.
  explicit SynchronousCopy(const Transfer& transfer);
  // The order for a piece of the copy; the one of its last piece counts for all.
  copy::Order order(const copy::Piece& piece) const;
  // To be called after the frames were sent. Needs a current context.
  CUresult finish();

 private:
  bool can_be_told() const;

  Session& session_;
  const uint16_t context_;
  const CUstream stream_;
  const uint64_t bytes_;
  enum class Kind : uint8_t {
    kAsynchronous,
    kSmallFromPageable,
    kFromPageable,
    kFromPinned,
    kOwnWork
  } kind_;
  std::optional<StreamMark> before_;  // what is awaited, from pageable memory
  bool awaited_ = false;
  uint64_t host_call_period_ = 0;
};

}  // namespace fargpu::client
