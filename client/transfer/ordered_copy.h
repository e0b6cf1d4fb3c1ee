// Asynchronous copies of pinned and registered memory that follow their stream (OrderedCopies):
// which copies go this way, how they are ordered, and the thread that sends their bytes.
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

// Whether pinned or registered memory may still be written between the call of a copy that reads it
// and the moment when the stream reaches the copy. It may be written by host functions and copies
// in streams, by device code, or by the application itself, which can know that the stream is held:
// by a wait for a value, or by a kernel that reads memory of both. The host end has a region.
bool may_be_written_later(const Transfer& transfer);
// Whether a copy to the device could be left to be fetched; and a piece of such a copy.
bool is_fetchable(const Transfer& transfer);
CUresult fetch_piece(const Transfer& transfer, const copy::Piece& piece, copy::Hold hold);

// To be called before the application's memory ends: waits for the copies that use it.
CUresult finish_copies_of(Session& session, const Region& region);
// To be called before work enters the stream that may use the application's memory, or that tells
// other processes how far the stream is: what comes behind finds the bytes of the deliveries before
// it. Does nothing while no copy is under way.
CUresult wait_for_deliveries(Session& session, CUstream stream);

}  // namespace fargpu::client
