// RemoteMemory of the rdma transport, and the index of registered memory that its sender searches.
//
// Thread rules as in remote_memory.h; find() may be called from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "common/transport/rdma/rdma_link.h"
#include "common/transport/remote_memory.h"

namespace fargpu::transport {

// Which memory of ours is registered. Outlives the transport while registrations do.
class RdmaRegions {
 public:
  void add(const std::shared_ptr<RdmaRegion>& region);
  void remove(const RdmaRegion& region);
  // A region that holds all of `memory`; null when none is known. It stays registered while the
  // pointer is held.
  std::shared_ptr<RdmaRegion> find(std::span<const std::byte> memory);

 private:
  std::mutex mutex_;
  std::multimap<uintptr_t, std::shared_ptr<RdmaRegion>> by_begin_;  // guarded by mutex_
};

class RdmaMemory final : public RemoteMemory {
 public:
  RdmaMemory(std::shared_ptr<RdmaDomain> domain, RdmaLink& link);

  Result<std::unique_ptr<RegisteredMemory>> register_memory(std::span<std::byte> memory,
                                                            RemoteAccess access) override;
  Result<std::unique_ptr<RegisteredMemory>> register_dmabuf(int dmabuf, uint64_t offset,
                                                            std::span<std::byte> memory,
                                                            RemoteAccess access) override;
  Result<Ticket> read(const RemoteKey& from, uint64_t from_offset, const RegisteredMemory& to,
                      std::span<std::byte> destination) override;
  Result<Ticket> write(const RegisteredMemory& from, std::span<const std::byte> source,
                       const RemoteKey& to, uint64_t to_offset) override;
  Status read_now(const RemoteKey& from, uint64_t from_offset, const RegisteredMemory& to,
                  std::span<std::byte> destination, Deadline deadline) override;
  Status write_now(const RegisteredMemory& from, std::span<const std::byte> source,
                   const RemoteKey& to, uint64_t to_offset, Deadline deadline) override;
  Status wait(Ticket ticket, Deadline deadline) override;
  std::string route() const override { return link_.route(); }
  RdmaRegions& regions() { return *regions_; }

 private:
  struct Transfer {
    ibv_wr_opcode opcode;
    const RegisteredMemory& ours;
    std::span<const std::byte> memory;
    const RemoteKey& theirs;
    uint64_t offset;
  };
  // The key of our side; an error when a range is outside of its registration.
  static Result<uint32_t> check(const Transfer& transfer);
  // Posts the first part of the rest, at most max_message() and `limit`, and removes it; 0: the
  // send queue has no room.
  Result<Ticket> post_part(Transfer& transfer, uint32_t local_key, uint64_t limit, bool signal);
  Result<Ticket> start(Transfer transfer);
  Status complete(Transfer transfer, Deadline deadline);

  const std::shared_ptr<RdmaDomain> domain_;
  RdmaLink& link_;
  const std::shared_ptr<RdmaRegions> regions_ = std::make_shared<RdmaRegions>();
};

}  // namespace fargpu::transport
