// A copy between the client's registered memory and device memory that the adapter makes by itself,
// in its place in a stream.
//
// To the stream it is a host function: when everything before it is done, a thread of the driver
// moves the bytes by one-sided transfers, and what comes behind it in the stream waits. The
// executor takes no part in that: it may itself be waiting for the driver, because the stream is
// full.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "common/transport/remote_memory.h"
#include "server/memory/direct_memory.h"

namespace fargpu::server {

struct DriverTable;

struct DirectCopy {
  transport::RemoteMemory* remote = nullptr;  // outlives the driver's threads
  bool to_device = false;
  transport::RemoteKey client;  // the range has been checked against it
  uint64_t offset = 0;          // in the client's memory
  std::vector<DirectMemory::Part> device;
};

// Puts the copy behind what is in the stream, whose context is current. A transfer that fails has
// ended the session. In a context that has failed the copy is not made, like everything else there.
CUresult enqueue_direct(const DriverTable& driver, CUstream stream, DirectCopy copy);

}  // namespace fargpu::server
