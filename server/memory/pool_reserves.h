// PoolReserves: the session's memory pools on each device, and the memory that they and graphs have
// from the driver: what is allocated, what is kept after a free, and what is still to be freed.
//
// A pool that is destroyed while its memory is in use goes later, since nobody could ask it any
// more. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace fargpu::server {

struct DriverTable;

class PoolReserves {
 public:
  explicit PoolReserves(const DriverTable& driver, size_t devices)
      : driver_(driver), devices_(devices) {}

  // A pool of the session's own on that device, made or the default one.
  void add(CUmemoryPool pool, size_t device);
  // Memory is allocated from the current pool of the device: that may be the default one.
  void use_default(size_t device);
  // As the driver's call.
  CUresult destroy(CUmemoryPool pool, size_t device);

  // Bytes of all pools on the device. Pools that were destroyed go when they have none.
  uint64_t reserved(size_t device);
  // Graphs of the session allocate on the device.
  void use_graphs(size_t device) { devices_[device].has_graphs = true; }
  // Bytes of all graphs, also of those that have gone.
  uint64_t reserved_by_graphs(size_t device) const;
  // What is kept goes back to the device.
  void trim(size_t device) const;

 private:
  struct Pool {
    CUmemoryPool handle;
    bool ending = false;
  };
  struct Device {
    std::vector<Pool> pools;
    bool has_default = false, has_graphs = false;
  };
  uint64_t reserved(const Pool& pool) const;

  const DriverTable& driver_;
  std::vector<Device> devices_;
};

}  // namespace fargpu::server
