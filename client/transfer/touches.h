// Mapped memory that comes when it is touched: who fetches it, who finds out that no work is left
// that may write it, and when it must stay as it is. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/memory/address_map.h"
#include "client/memory/page_gate.h"

namespace fargpu::client {

class Session;

// Whether the session's mapped memory may come so. Memory that other sessions mirror, too, comes
// with every synchronisation.
bool comes_when_touched(const Session& session);
// The gate of memory that gets a mirror, whose accesses are served, for Pages; nullptr: it comes as
// a whole.
std::shared_ptr<PageGate> gate_of(Session& session, const Region& region);
// Before bytes from this address on are read or written here, or by an adapter: pinned and
// registered memory that they belong to comes with every synchronisation from now on.
CUresult keep_open(Session& session, uint64_t address, uint64_t bytes);
// A thread that closes memory, or holds what its fetch needs, must not have its stack there: it
// would wait for itself. Memory that has the stack of this thread, or of the fiber that it runs,
// comes with every synchronisation from now on. Before any lock is taken.
void keep_stack_open(Session& session);

}  // namespace fargpu::client
