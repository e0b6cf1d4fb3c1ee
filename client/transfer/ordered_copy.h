// Asynchronous copies of pinned and registered memory that go through frames, as calls: which ones
// are made so, and how they are ordered (OrderedCopies).
//
// Any thread; needs a current context.
#pragma once

#include <cuda.h>

#include "client/copy/ordered_copies.h"

namespace fargpu::client {

class Session;
struct Region;

// For the session's OrderedCopies.
OrderedCopies::Wire wire_of_ordered_copies(Session& session);

// The host side lies in memory of the application that the driver knows, and the copy to it can
// follow its stream: such a copy returns at once.
bool is_delivered(Session& session, const Side& host, const Box& box);
CUresult deliver_to_host(Session& session, const Side& dst, const Side& src, const Box& box,
                         CUstream stream);

// What the application has pinned or registered may be written after the call of a copy that reads
// it, before its stream comes to it: by functions of the application and copies in streams, by
// device code, or by the application itself, which can know that the stream is held: by a wait for
// a value, or by a kernel that looks at memory of both.
bool may_be_written_later(Session& session, const Region& region, uint64_t address, uint64_t bytes);
// The same in the other direction: the bytes must not be taken now.
bool is_fetched(Session& session, const Side& host, const Box& box);
// It could be made so, at a higher price.
bool is_fetchable(Session& session, const Side& host, const Box& box);
CUresult fetch_to_device(Session& session, const Side& dst, const Side& src, const Box& box,
                         CUstream stream);

// Before the application's memory goes: waits for the copies that use it.
CUresult finish_copies_of(Session& session, const Region& region);
// Before work that may use the application's memory is put into the stream, where OrderedCopies has
// deliveries to be met: the work sees the bytes of those that are before it.
CUresult meet_deliveries(Session& session, CUstream stream);

}  // namespace fargpu::client
