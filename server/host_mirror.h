// HostMirror: memory of the worker at the addresses of the client's mapped pinned memory,
// registered with the driver, so that device code can use the client's pointers. The client sends
// and fetches contents at synchronisation points. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace fargpu::server {

struct DriverTable;

class HostMirror {
 public:
  // Of one session, over all its mirrors: it is real memory of the server.
  static constexpr uint64_t kMaxBytes = uint64_t{16} << 30;

  explicit HostMirror(const DriverTable& driver) : driver_(driver) {}
  ~HostMirror();
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;

  // CUDA_ERROR_INVALID_VALUE: not page-aligned or empty; CUDA_ERROR_ALREADY_MAPPED: the range is in
  // use in this process; CUDA_ERROR_OUT_OF_MEMORY: over kMaxBytes; otherwise what the driver says.
  // A context must be current.
  CUresult map(uint64_t address, size_t bytes, CUdeviceptr* device_pointer);
  CUresult unmap(uint64_t address);
  // The mirrored bytes [address, address + bytes), wherever in a mirror they begin; empty when they
  // are not all inside one.
  std::span<std::byte> find(uint64_t address, size_t bytes);

 private:
  void release(uint64_t address, size_t bytes);

  const DriverTable& driver_;
  std::map<uint64_t, size_t> mirrors_;  // address -> bytes, a multiple of the page size
  uint64_t total_bytes_ = 0;
};

}  // namespace fargpu::server
