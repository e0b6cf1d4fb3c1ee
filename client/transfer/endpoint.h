// An end of a copy or a memset: what the process knows of the memory at an address. An address is
// looked up once per call, here; what was found goes along with the call. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "client/memory/address_map.h"
#include "common/copy/shape.h"

namespace fargpu::client {

class Session;

struct Endpoint {
  bool device = false;  // else host memory
  copy::Rows rows;
  // What the address belongs to. Of a device end: memory of whatever session. Of a host end: memory
  // that the application pinned or registered, as the call's session has it (Session::find_host).
  std::optional<Region> region;
  uint64_t known = 0;  // bytes from the address on that belong to it

  Session* session() const { return region ? region->session : nullptr; }
};

// Of an address that the application says is of the device, or of the host.
Endpoint device_end(Session& session, const copy::Rows& rows);
Endpoint host_end(Session& session, const copy::Rows& rows);
// Of a unified address. What is not known and can be read here is host memory.
Endpoint unified_end(Session& session, const copy::Rows& rows);

// CUDA_ERROR_INVALID_VALUE: so many bytes from the address on begin in known device memory and run
// out of it, or that memory is one of another session. Memory that is not known is the driver's to
// judge.
CUresult check_range(const Session& session, const Endpoint& device, uint64_t bytes);

// Mapped virtual memory may not be accessible yet, so the first operation on it is awaited: after
// that was sent, flush_first_use(). `answered`: the worker has said already what became of it.
bool is_untried(const Endpoint& device);
CUresult flush_first_use(Session& session, const Endpoint& device, uint64_t bytes,
                         bool answered = false);

}  // namespace fargpu::client
