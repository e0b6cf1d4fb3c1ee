// Asynchronous copies of pinned and registered memory that follow their stream (OrderedCopies): how
// they are submitted, and the thread that sends their bytes.
//
// Any thread; needs a current context.
#pragma once

#include <cuda.h>

#include "common/copy/copy.h"
#include "common/copy/shape.h"

namespace fargpu::client {

class Session;
struct Region;
struct Transfer;

// Leaves a piece of a copy to the device to be fetched, with the hold of the plan.
CUresult fetch_piece(const Transfer& transfer, const copy::Piece& piece);

// To be called before the application's memory ends: waits for the copies that use it.
CUresult finish_copies_of(Session& session, const Region& region);
// To be called before work enters the stream that may use the application's memory, or that tells
// other processes how far the stream is: what comes behind finds the bytes of the deliveries before
// it. Does nothing while no copy is under way.
CUresult wait_for_deliveries(Session& session, CUstream stream);

}  // namespace fargpu::client
