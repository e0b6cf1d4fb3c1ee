// What the parts of one rdma connection share and what its registered memory needs: the rdma_cm id
// with its event channel, and a protection domain of its own. Keys work only inside the domain, so
// keys given to one peer are useless to another.
//
// Shared by the transport and every registration; the last one to go frees it. After abandon() (in
// a forked child) nothing here calls the adapter again or touches the parent's resources.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "common/base/status.h"
#include "common/transport/rdma/rdma_library.h"
#include "common/transport/remote_memory.h"

namespace fargpu::transport {

class RdmaDomain {
 public:
  // Takes over both; the id has a device (its address is resolved, or it came with a connection
  // request).
  static Result<std::shared_ptr<RdmaDomain>> create(rdma_event_channel* channel, rdma_cm_id* id);
  RdmaDomain(rdma_event_channel* channel, rdma_cm_id* id) : channel_(channel), id_(id) {}
  ~RdmaDomain();
  RdmaDomain(const RdmaDomain&) = delete;
  RdmaDomain& operator=(const RdmaDomain&) = delete;

  rdma_cm_id* id() const { return id_; }
  rdma_event_channel* events() const { return channel_; }
  ibv_context* context() const { return id_->verbs; }
  ibv_pd* pd() const { return pd_; }
  bool abandoned() const { return abandoned_.load(std::memory_order_acquire); }
  void abandon();

 private:
  rdma_event_channel* const channel_;
  rdma_cm_id* const id_;
  ibv_pd* pd_ = nullptr;
  std::atomic<bool> abandoned_{false};
};

// Replaces a descriptor, whose number may still be used elsewhere, by /dev/null, which closes the
// old file.
void forget_descriptor(int descriptor);

// Registered memory: deregistered when destroyed.
class RdmaRegion {
 public:
  static Result<std::shared_ptr<RdmaRegion>> create(std::shared_ptr<RdmaDomain> domain,
                                                    std::span<std::byte> memory,
                                                    RemoteAccess access);
  static Result<std::shared_ptr<RdmaRegion>> create_dmabuf(std::shared_ptr<RdmaDomain> domain,
                                                           int dmabuf, uint64_t offset,
                                                           std::span<std::byte> memory,
                                                           RemoteAccess access);
  RdmaRegion(std::shared_ptr<RdmaDomain> domain, ibv_mr* region, std::span<std::byte> memory)
      : domain_(std::move(domain)), region_(region), memory_(memory) {}
  ~RdmaRegion();
  RdmaRegion(const RdmaRegion&) = delete;
  RdmaRegion& operator=(const RdmaRegion&) = delete;

  std::span<std::byte> memory() const { return memory_; }
  uint32_t local_key() const { return region_->lkey; }
  uint32_t remote_key() const { return region_->rkey; }
  bool abandoned() const { return domain_->abandoned(); }

 private:
  const std::shared_ptr<RdmaDomain> domain_;
  ibv_mr* const region_;
  const std::span<std::byte> memory_;
};

// Pages of our own, registered: memory that the peer writes into, or that this end sends from. A
// ring: positions only grow, and the size is a power of two. A forked child does not inherit them.
class RdmaBuffer {
 public:
  static Result<std::unique_ptr<RdmaBuffer>> create(std::shared_ptr<RdmaDomain> domain,
                                                    size_t bytes, RemoteAccess access);
  ~RdmaBuffer();

  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }
  size_t offset(uint64_t position) const { return position & (memory_.size() - 1); }
  const RdmaRegion& region() const { return *region_; }

 private:
  RdmaBuffer(std::shared_ptr<RdmaRegion> region, std::span<std::byte> memory)
      : region_(std::move(region)), memory_(memory) {}
  std::shared_ptr<RdmaRegion> region_;
  const std::span<std::byte> memory_;
};

// kUnsupported for a device whose protocol lacks a required feature.
Status check_device(const ibv_context* context);
// A Status for a verbs call that failed with this errno; ENOMEM names the limit of locked memory.
Status verbs_error(const std::string& what, int error_number);

}  // namespace fargpu::transport
