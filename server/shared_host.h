// SharedHost: host memory of the client that this worker has too: a memfd of the client's, mapped at the client's addresses and registered with the
// driver, so that the GPU reads and writes the application's own memory.
//
// Nothing about a descriptor is believed: it must be a memfd that can never shrink (else touching it could kill this process) and that is as
// long as was said. A mapping belongs to the context it was registered in and goes with it. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

namespace fargpu::transport {
class DescriptorPassing;
}

namespace fargpu::server {

struct DriverTable;

class SharedHost {
 public:
  // Memory that stays mapped as long as somebody holds this; registered only while SharedHost has it.
  class Mapping {
   public:
    Mapping(std::byte* base, size_t bytes, uint16_t context) : base_(base), bytes_(bytes), context_(context) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    std::byte* base() const { return base_; }
    size_t bytes() const { return bytes_; }  // whole pages
    uint16_t context() const { return context_; }

   private:
    std::byte* const base_;
    const size_t bytes_;
    const uint16_t context_;
  };

  // Over all mappings: half of the machine's memory, but not less than 16 GiB. It is the client's memory, but the worker makes it stay in RAM.
  static uint64_t usual_limit();

  explicit SharedHost(const DriverTable& driver, uint64_t max_bytes = usual_limit()) : driver_(driver), max_bytes_(max_bytes) {}
  ~SharedHost();
  SharedHost(const SharedHost&) = delete;
  SharedHost& operator=(const SharedHost&) = delete;

  // Takes descriptor `number` (which is gone afterwards, whatever comes out) and maps it. `passing` may be null: CUDA_ERROR_NOT_SUPPORTED.
  // CUDA_ERROR_INVALID_HANDLE: there is no such descriptor; CUDA_ERROR_INVALID_VALUE: a wrong address or size, or memory that is not
  // sealed or too short; CUDA_ERROR_ALREADY_MAPPED: the range is in use in this process; CUDA_ERROR_OUT_OF_MEMORY: over the limit; otherwise what the
  // driver says. `context`, the id of the current one.
  CUresult share(transport::DescriptorPassing* passing, uint64_t number, uint64_t address, size_t bytes, uint16_t context,
                 CUdeviceptr* device_pointer);
  // Both with the mapping's context current and idle.
  CUresult unshare(uint64_t address);
  void forget_context(uint16_t context);

  // The mapping that holds all of [address, address + bytes); null when none does.
  std::shared_ptr<const Mapping> find(uint64_t address, uint64_t bytes) const;
  // The mapping that begins at `address`.
  std::shared_ptr<const Mapping> at(uint64_t address) const;
  uint64_t total_bytes() const { return total_bytes_; }

 private:
  using Map = std::map<uint64_t, std::shared_ptr<const Mapping>>;
  Map::iterator drop(Map::iterator mapping);

  const DriverTable& driver_;
  const uint64_t max_bytes_;
  Map mappings_;  // by address
  uint64_t total_bytes_ = 0;
};

}  // namespace fargpu::server
