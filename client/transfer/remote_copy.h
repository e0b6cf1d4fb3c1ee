// Copies by remote access between memory that the application has pinned (RemoteHost) and device
// memory: the worker fetches and delivers the bytes itself.
//
// Any thread; needs a current context.
#pragma once

#include <cuda.h>

#include <optional>

#include "client/copy/pack.h"
#include "client/memory/remote_host.h"

namespace fargpu::client {

class Session;

// The place of a host side that this copy should go to or come from by remote access; nullopt: it
// goes another way.
std::optional<RemoteHost::Place> remote_place(Session& session, const Side& host, const Box& box);
// In stream order; the worker may read the bytes until the stream has passed the copy.
CUresult remote_to_device(Session& session, const RemoteHost::Place& place, const Side& dst,
                          const Side& src, const Box& box, CUstream stream);
// The bytes are there when this returns.
CUresult remote_to_host(Session& session, const RemoteHost::Place& place, const Side& dst,
                        const Side& src, const Box& box, CUstream stream);

}  // namespace fargpu::client
