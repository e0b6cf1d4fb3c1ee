// One copy between the device and memory of the client that this end reaches through the client's
// adapter (rdma). One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/transport/remote_memory.h"
#include "server/memory/copy_shape.h"

namespace fargpu::server {

class MemoryAccount;
struct DriverTable;

struct RemoteCopy {
  transport::RemoteKey client;
  uint64_t offset = 0;  // of the packed bytes in the client's memory
  CUdeviceptr device = 0;
  Shape shape{};
  uint64_t bytes = 0;
  CUstream stream = nullptr;

  bool inside_client() const { return offset <= client.bytes && bytes <= client.bytes - offset; }
};

// Rows and slices follow each other without gaps.
bool is_dense(const Shape& shape);
// Puts the copy into the stream, whose context is current, if the adapter reaches all of the
// device's side: one allocation of this session, in one piece. False: it has to be staged.
bool start_direct(const DriverTable& driver, MemoryAccount& memory, const RemoteCopy& copy,
                  bool to_device, CUresult* result);

}  // namespace fargpu::server
