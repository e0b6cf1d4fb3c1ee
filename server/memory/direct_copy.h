// A copy between the client's registered memory and device memory that the adapter makes by itself,
// at its place in a stream.
//
// In the stream it is a host function: when everything before it is done, a thread of the driver
// moves the bytes by one-sided transfers, and what is behind it in the stream waits. The executor
// is not involved, because it may itself be waiting in the driver for room in the stream.
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

// Enqueues the copy on the stream, whose context is current. A transfer that fails ends the
// session. In a context that has failed the copy is not made, like all other work there.
CUresult enqueue_direct(const DriverTable& driver, CUstream stream, DirectCopy copy);

}  // namespace fargpu::server
