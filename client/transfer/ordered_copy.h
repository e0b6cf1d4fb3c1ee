// Asynchronous copies of pinned and registered memory that travel in frames: which copies go this
// way, and how they are ordered (OrderedCopies).
//
// Any thread; needs a current context.
#pragma once

#include <cuda.h>

#include "client/copy/ordered_copies.h"

namespace fargpu::client {

class Session;
struct Region;

// The wire of the session's OrderedCopies.
OrderedCopies::Wire wire_of_ordered_copies(Session& session);

// Whether the host side lies in pinned or registered memory of the application, and the copy to it
// can follow its stream. Such a copy returns at once.
bool is_delivered(Session& session, const Side& host, const Box& box);
CUresult deliver_to_host(Session& session, const Side& dst, const Side& src, const Box& box,
                         CUstream stream);

// Whether pinned or registered memory may still be written between the call of a copy that reads it
// and the moment when the stream reaches the copy. It may be written by host functions and copies
// in streams, by device code, or by the application itself, which can know that the stream is held:
// by a wait for a value, or by a kernel that reads memory of both.
bool may_be_written_later(Session& session, const Region& region, uint64_t address, uint64_t bytes);
// The same for copies to the device: the bytes must not be taken in the call.
bool is_fetched(Session& session, const Side& host, const Box& box);
// Whether the copy could be made so, at a higher cost.
bool is_fetchable(Session& session, const Side& host, const Box& box);
CUresult fetch_to_device(Session& session, const Side& dst, const Side& src, const Box& box,
                         CUstream stream);

// To be called before the application's memory ends: waits for the copies that use it.
CUresult finish_copies_of(Session& session, const Region& region);
// To be called before work that may use the application's memory enters the stream, when
// OrderedCopies has deliveries to meet: the work then sees the bytes of those before it.
CUresult meet_deliveries(Session& session, CUstream stream);

}  // namespace fargpu::client
