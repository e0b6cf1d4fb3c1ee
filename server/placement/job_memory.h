// JobMemory: the device memory that the sessions of one job have taken, GPU by GPU, against the
// job's limit: a page that the daemon makes and each worker of the job maps.
//
// Each session writes its own slot only, and the job's memory is the sum of its slots; there is no
// second figure that could disagree. So a worker may die at any instruction: the daemon clears its
// slot, which gives back exactly what it held.
//
// The sum never passes the limit: charge() first adds to its slot, then reads the sum, and
// subtracts the excess. Two sessions that ask at once for the last bytes may see each other's try,
// so a refused charge tries again a few times before it says no.
//
// A slot also says whose it is: behind the amounts, for workers of management sessions.
//
// Pages are sealed: no worker can shrink one under the daemon. A worker that writes into others'
// slots cheats its own job alone. No lock, no wait for another process. Each object: one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/status.h"
#include "common/host/shared_page.h"

namespace fargpu::server {

struct JobMemoryShape {
  uint32_t gpus = 0;
  uint32_t slots = 0;        // sessions at once
  uint64_t limit_bytes = 0;  // per GPU; 0: no limit
};

// The client's process that has a session. Process numbers are comparable only for equal `host`: a
// digest of the client's host and pid namespace; 0: it did not say.
struct SlotOwner {
  uint64_t host = 0;
  int32_t pid = 0;
};

class JobMemory {
 public:
  // A new page, all slots clear; descriptor() is for workers.
  static Result<JobMemory> create(const JobMemoryShape& shape);
  // The page behind a descriptor that was inherited (closes it), for the session with that slot.
  // kProtocol: the page is smaller than that shape, or not sealed.
  static Result<JobMemory> open(Fd descriptor, const JobMemoryShape& shape, uint32_t slot);

  // For the own slot. charge() is false when the job would pass its limit; nothing is taken then.
  bool charge(size_t gpu, uint64_t bytes);
  void refund(size_t gpu, uint64_t bytes);
  // Charges memory that another session held until now, regardless of the limit.
  void take_over(size_t gpu, uint64_t bytes);
  // The memory of all sessions of the job on this GPU.
  uint64_t used(size_t gpu) const;
  // The memory of one session, and its owner; pid 0: no owner, or an older daemon. `slot` <
  // slots().
  uint64_t used_by(size_t gpu, uint32_t slot) const;
  SlotOwner owner(uint32_t slot) const;
  uint32_t slots() const { return shape_.slots; }

  // The daemon's: a session is about to use the slot; one has ended, and its process is gone.
  void take(uint32_t slot, const SlotOwner& owner = {});
  void clear(uint32_t slot);
  int descriptor() const { return memory_.descriptor(); }

 private:
  struct Page;
  JobMemory(SharedPage memory, const JobMemoryShape& shape, uint32_t slot)
      : memory_(std::move(memory)), shape_(shape), slot_(slot) {}
  Page* page() const;
  std::span<std::atomic<uint64_t>> slots_of(size_t gpu) const;
  // Two words per slot: host, pid. Empty when the page has none.
  std::span<std::atomic<uint64_t>> owners() const;

  SharedPage memory_;
  JobMemoryShape shape_;
  uint32_t slot_ = 0;
};

}  // namespace fargpu::server
