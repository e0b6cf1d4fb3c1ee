// RemoteHost: memory of this process that is registered with the client's adapter (rdma), so that
// the worker fetches and delivers bytes by itself, without a copy by this CPU.
//
// What the application pinned (cuMemHostAlloc, cuMemHostRegister) is registered whole when a copy
// first uses it, and stays so until it is freed or unregistered, or until room for registrations is
// short and nothing uses it. Only such memory: CUDA says when it goes. Pageable memory goes through
// staging slots instead, because nobody tells when the C library unmaps it, and a registration
// would go on naming the old pages.
// Where the transport has no remote memory, or the worker cannot take part, or the limit of locked
// memory is reached, bytes travel in frames. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>

#include "common/transport/registration_cache.h"
#include "common/transport/remote_memory.h"

namespace fargpu::client {

class Session;
struct Region;

class RemoteHost {
 public:
  // Smaller copies travel in frames: one message instead of two.
  static constexpr size_t kFrom = (64u << 10) + 1;
  // What the worker takes in one call.
  static constexpr size_t kPieceBytes = 16u << 20;

  // Whether transport and worker can do it at all; asks the worker once. Needs a current context.
  bool possible(Session& session);

  struct Place {
    transport::RemoteKey key;
    uint64_t offset = 0;  // of the address asked for
    // Keeps the registration while a copy is being sent.
    transport::RegistrationCache::Registration registration;
  };
  // Of an address in memory that the application has pinned; registers it. nullopt: that cannot be
  // done. Needs a current context.
  std::optional<Place> find(Session& session, const Region& region, uint64_t address);
  // A copy that may use the place after its call has returned was sent.
  void sent(const Place& place);
  // The application ends the memory: waits until no work is left that may use it, then ends its
  // registration. Nothing for memory that has none.
  CUresult remove(Session& session, const Region& region);

  // For staging memory of our own. nullptr: not possible, said once.
  std::unique_ptr<transport::RegisteredMemory> enroll(Session& session,
                                                      std::span<std::byte> memory);

 private:
  using Registration = transport::RegistrationCache::Registration;
  transport::RegistrationCache& cache(Session& session);
  // Registrations that copies of the past may still be using are given up once those are done.
  bool make_room(Session& session);

  std::mutex mutex_;
  std::optional<bool> possible_;                         // guarded by mutex_, like these
  std::unique_ptr<transport::RegistrationCache> cache_;  // itself safe for any thread
  std::set<Registration> in_use_;                        // what asynchronous copies may be reading
  std::set<uint64_t> refused_;  // bases of regions that cannot be registered
};

}  // namespace fargpu::client
