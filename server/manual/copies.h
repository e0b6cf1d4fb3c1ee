// The ways of a copy in the worker. copy.cc reads the message and chooses the route; each route
// answers by itself, at once or later.
#pragma once

#include "common/copy/copy.h"
#include "server/manual/manual.h"

namespace fargpu::server {

using copy::Copy;

struct CopyCall {
  Worker& worker;
  const Request& request;
  Copy copy;
  const uint64_t stream_id;
  FrameStream stream{};  // from enter() on; may be of another context than the frame

  uint64_t bytes() const { return copy.shape.bytes(); }
  uint16_t context() const { return stream.context; }  // where the copy is made
  // The lifetime of the data that the copy uses, and its end: once it is in the stream.
  UntilPassed passed() const { return {stream.context, stream.handle}; }
  const char* name() const;  // of the call
  // Finds the stream and the arrays, and makes the stream's context current.
  CUresult enter();
  // Applies the copy's Order, once the copy is in the stream.
  CUresult order() const;
};

// In ordered_copy.cc.
Status deliver(CopyCall& call);
Status fetch(CopyCall& call);
Status amended(CopyCall& call);
// In remote.cc.
Status copy_from_remote(CopyCall& call);
Status copy_to_remote(CopyCall& call);

}  // namespace fargpu::server
