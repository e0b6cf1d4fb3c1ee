// A copy between the client's registered memory and device memory that the adapter makes by itself,
// at its place in a stream.
//
// In the stream it is a host function: when all earlier work is done, a thread of the driver moves
// the bytes by one-sided transfers, and later work in the stream waits. The executor is not
// involved, because it may itself be waiting in the driver for room in the stream.
#pragma once

#include <cuda.h>

#include "common/copy/copy.h"

namespace fargpu::server {

class MemoryAccount;
struct DriverTable;

// Puts the copy, whose host end is remote and in range, into the stream, whose context is current,
// if the adapter reaches all of the device's end: one allocation of this session, in one piece.
// False: it has to be staged. A transfer that fails ends the session. In a context that has failed
// the copy is not made, like all other work there.
bool start_direct(const DriverTable& driver, MemoryAccount& memory, const copy::Copy& copy,
                  CUstream stream, CUresult* result);

}  // namespace fargpu::server
