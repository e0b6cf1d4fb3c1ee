// RemoteHost: memory of this process that is registered with the client's adapter (rdma). The
// worker reads and writes it by itself, without a copy by this CPU.
//
// Memory that the application pinned (cuMemHostAlloc, cuMemHostRegister) is registered as a whole
// when a copy first uses it. It stays registered until it is freed or unregistered, or until room
// for registrations is short and no copy uses it. Only such memory is registered, because CUDA says
// when it ends. Pageable memory goes through staging slots: the C library may unmap it unnoticed,
// and a registration would still name the old pages. Bytes travel in frames where the transport has
// no remote memory, where the worker cannot use it, or when the limit of locked memory is reached.
// Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>

#include "common/copy/copy.h"
#include "common/transport/registration_cache.h"
#include "common/transport/remote_memory.h"

namespace fargpu::client {

class HostCalls;
class Link;
struct Region;

class RemoteHost {
 public:
  // `functions`: calls that may block streams for which a driver waits when memory is freed.
  RemoteHost(Link& link, HostCalls& functions) : link_(link), functions_(functions) {}

  // Whether transport and worker support it; asks the worker once. Needs a current context.
  bool possible();

  struct RegisteredRange {
    copy::Location begin;  // of the requested address
    // Keeps the registration while a copy is being sent.
    transport::RegistrationCache::Registration registration;

    copy::Location at(uint64_t offset) const {
      return copy::Location::in(begin.remote, begin.offset + offset);
    }
  };
  // The range from an address on in pinned memory of the application; registers the memory.
  // nullopt: not possible. Needs a current context.
  std::optional<RegisteredRange> find(const Region& region, uint64_t address);
  // Reports that a copy was sent which may use the range after its call has returned.
  void sent(const RegisteredRange& range);
  // The application ends the memory. Waits until no work is left that may use it, then ends its
  // registration, if there is one.
  CUresult remove(const Region& region);

  // Registers staging memory of ours. nullptr: not possible; logged once.
  std::unique_ptr<transport::RegisteredMemory> enroll(std::span<std::byte> memory);

 private:
  using Registration = transport::RegistrationCache::Registration;
  transport::RegistrationCache& cache();
  // Drops registrations that earlier copies used, once those copies are done.
  bool make_room();

  Link& link_;
  HostCalls& functions_;
  std::mutex mutex_;
  std::optional<bool> possible_;                         // guarded by mutex_, like these
  std::unique_ptr<transport::RegistrationCache> cache_;  // itself safe for any thread
  std::set<Registration> in_use_;                        // by asynchronous copies
  std::set<uint64_t> refused_;  // bases of regions that cannot be registered
};

}  // namespace fargpu::client
