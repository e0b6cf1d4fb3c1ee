// DirectMemory: device memory that the adapter reads and writes by itself (GPUDirect RDMA), so that
// bulk needs no staging memory.
//
// The adapter reaches it in one of two ways: through a dma-buf of the memory
// (cuMemGetHandleForAddressRange), or by its address. The kernel resolves the address when the
// driver's peer-memory module is loaded, and where "device" memory is the CPU's, as with the
// simulated GPU. Memory is registered at its first use, in windows of kWindow of an allocation,
// because an adapter's tables and a GPU's PCIe window have limited room. Only this end uses the
// registrations: the client never gets a key of device memory. A registration must end before its
// memory does: code that frees memory calls forget() or take(). One thread (the executor's), with
// the memory's context current.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/transport/remote_memory.h"
#include "server/object/ledger.h"
#include "server/object/object_end.h"

namespace fargpu::server {

struct DriverTable;

class DirectMemory {
 public:
  static constexpr uint64_t kWindow = 64u << 20;
  // With Soft-RoCE staged and direct copies cost the same between 64 KiB and 1 MiB
  // (bench/rdma_direct.sh).
  static constexpr uint64_t kUsualFrom = 1u << 20;

  struct Options {
    bool enabled = true;         // FARGPU_GPUDIRECT=0 switches it off
    uint64_t from = kUsualFrom;  // FARGPU_GPUDIRECT_FROM: smaller copies go through staging
    // kInvalidArgument names the variable.
    static Result<Options> from_environment();
  };
  enum class Access { kStaged, kDmabuf, kPeerMemory };
  static const char* name(Access access);

  using Registration = std::shared_ptr<const transport::RegisteredMemory>;
  struct Part {
    Registration registration;
    std::span<std::byte> bytes;  // inside it
  };

  // `remote` may be null. Both outlive this.
  DirectMemory(const DriverTable& driver, transport::RemoteMemory* remote, Options options)
      : driver_(driver), remote_(remote), options_(options) {}

  bool wanted(uint64_t bytes) const {
    return remote_ != nullptr && options_.enabled && bytes >= options_.from;
  }
  // [address, address + bytes), which lies in `allocation`, as registered parts in order. Registers
  // the parts that are not registered yet. Empty: not possible, the copy goes through staging.
  // `to_device`: the adapter will write there.
  std::vector<Part> find(const Ledger::AllocationAt& allocation, CUdeviceptr address,
                         uint64_t bytes, bool to_device);

  // Removes and returns the registrations in a range. The caller destroys them before the memory is
  // freed.
  std::vector<Registration> take(CUdeviceptr address, uint64_t bytes);
  void forget(CUdeviceptr address, uint64_t bytes) { (void)take(address, bytes); }
  void context_ended(const ContextEnd& end);

  // The best access to memory of a device, tried with `bytes` at `address`; `why`: the reason
  // against the better methods, or against all.
  Access probe(int device, CUdeviceptr address, uint64_t bytes, std::string* why);
  uint64_t from() const { return options_.from; }
  transport::RemoteMemory* remote() const { return remote_; }
  size_t windows() const { return windows_.size(); }

 private:
  struct Window {
    uint64_t end = 0;
    uint16_t context = 0;
    Registration registration;  // null: registering failed
  };
  using Windows = std::map<CUdeviceptr, Window>;
  struct Attempt {
    Access access = Access::kStaged;
    Registration registration;
    std::string why;
  };
  // Whether the driver says that memory of this kind can be registered.
  bool capable(CUdeviceptr address) const;
  Attempt attempt(int device, CUdeviceptr begin, uint64_t bytes);
  Result<Registration> by_dmabuf(int device, CUdeviceptr begin, uint64_t bytes);
  Result<Registration> by_address(CUdeviceptr begin, uint64_t bytes);
  // Work that starts later sees the adapter's writes.
  bool writes_are_ordered(int device);
  Windows::iterator first_touching(CUdeviceptr address);

  const DriverTable& driver_;
  transport::RemoteMemory* const remote_;
  const Options options_;
  Windows windows_;        // by first address, never overlapping
  unsigned failures_ = 0;  // in a row
  bool told_ = false;
};

}  // namespace fargpu::server
