// Mapped memory that comes when it is touched: who fetches it, who finds out that no work is left
// that may write it, and when it must stay as it is. Any thread.
#pragma once

#include <cuda.h>

#include "client/memory/address_map.h"

namespace fargpu::client {

class Session;

// Such memory, whose accesses are served; nullptr: there is none.
void* allocate_touched(Session& session, size_t bytes);
// Before bytes of pinned memory are read or written here by its own address, or by an adapter: it
// comes with every synchronisation from now on.
CUresult keep_open(Session& session, const Region& region);

}  // namespace fargpu::client
