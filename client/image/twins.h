// Libraries of a program with several servers. A library belongs to no context: a program loads it
// once, for all its devices. So it is loaded at every server, and the handle that the program gets
// stands for all of these: that of the server where it was loaded first, and its twins elsewhere.
// Handles of kernels the same way. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

#include "client/image/load.h"
#include "client/process/session.h"

namespace fargpu::client {

// Loads the twins of a library that `home` has loaded from `image`. A server that cannot load it
// has none: its devices then refuse the handle.
void load_twins(Session& home, const Image& image, const JitOptions& jit, CUlibrary library);

// The library itself, or its instance at another server when its server is lost: that of the
// current context, if it has one, else any.
CUlibrary surviving(CUlibrary library);

// The id of this library or kernel in `session`. Handles of that session, handles of other kinds,
// and handles without a twin there stay unchanged.
uint64_t twin_of(Session& session, uint64_t id);
template <typename Handle>
Handle in_session(Session& session, Handle handle) {
  const auto id = reinterpret_cast<uint64_t>(handle);
  if (rpc::handle_session(id) == session.number) [[likely]]
    return handle;
  return reinterpret_cast<Handle>(twin_of(session, id));
}
// The same in the session of the current context, if there is one.
template <typename Handle>
Handle of_current_session(Handle handle) {
  const Context* const context = current_context();
  return context == nullptr ? handle : in_session(*context->session, handle);
}

}  // namespace fargpu::client
