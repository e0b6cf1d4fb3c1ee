#include "common/transport/rdma_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace fargpu::transport {
namespace {

class Registered final : public RegisteredMemory {
 public:
  Registered(std::shared_ptr<RdmaRegion> region, std::shared_ptr<RdmaRegions> regions,
             RemoteAccess access, bool in_index)
      : region_(std::move(region)),
        regions_(std::move(regions)),
        access_(access),
        in_index_(in_index) {
    if (in_index_) regions_->add(region_);
  }
  ~Registered() override {
    if (in_index_) regions_->remove(*region_);
  }
  std::span<std::byte> memory() const override { return region_->memory(); }
  RemoteKey key() const override {
    if (access_ == RemoteAccess::kNone) return {};
    return {reinterpret_cast<uintptr_t>(memory().data()), memory().size(), region_->remote_key()};
  }
  const RdmaRegion& region() const { return *region_; }

 private:
  const std::shared_ptr<RdmaRegion> region_;
  const std::shared_ptr<RdmaRegions> regions_;
  const RemoteAccess access_;
  const bool in_index_;
};

}  // namespace

void RdmaRegions::add(const std::shared_ptr<RdmaRegion>& region) {
  std::lock_guard lock(mutex_);
  by_begin_.emplace(reinterpret_cast<uintptr_t>(region->memory().data()), region);
}

void RdmaRegions::remove(const RdmaRegion& region) {
  std::lock_guard lock(mutex_);
  auto [first, last] = by_begin_.equal_range(reinterpret_cast<uintptr_t>(region.memory().data()));
  const auto found =
      std::find_if(first, last, [&](const auto& entry) { return entry.second.get() == &region; });
  if (found != last) by_begin_.erase(found);
}

std::shared_ptr<RdmaRegion> RdmaRegions::find(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  std::lock_guard lock(mutex_);
  // Overlapping registrations may hide the right one behind others; not finding it costs a copy, no
  // more.
  auto candidate = by_begin_.upper_bound(begin);
  for (int tries = 8; tries > 0 && candidate != by_begin_.begin(); --tries) {
    --candidate;
    const size_t bytes = candidate->second->memory().size();
    if (begin - candidate->first <= bytes && bytes - (begin - candidate->first) >= memory.size())
      return candidate->second;
  }
  return nullptr;
}

RdmaMemory::RdmaMemory(std::shared_ptr<RdmaDomain> domain, RdmaLink& link)
    : domain_(std::move(domain)), link_(link) {}

Result<std::unique_ptr<RegisteredMemory>> RdmaMemory::register_memory(std::span<std::byte> memory,
                                                                      RemoteAccess access) {
  if (link_.lost()) return link_.lost_status();
  FARGPU_ASSIGN_OR_RETURN(auto region, RdmaRegion::create(domain_, memory, access));
  return std::unique_ptr<RegisteredMemory>(
      std::make_unique<Registered>(std::move(region), regions_, access, true));
}

Result<std::unique_ptr<RegisteredMemory>> RdmaMemory::register_dmabuf(int dmabuf, uint64_t offset,
                                                                      std::span<std::byte> memory,
                                                                      RemoteAccess access) {
  if (link_.lost()) return link_.lost_status();
  FARGPU_ASSIGN_OR_RETURN(auto region,
                          RdmaRegion::create_dmabuf(domain_, dmabuf, offset, memory, access));
  return std::unique_ptr<RegisteredMemory>(
      std::make_unique<Registered>(std::move(region), regions_, access, false));
}

Result<RemoteMemory::Ticket> RdmaMemory::read(const RemoteKey& from, uint64_t from_offset,
                                              const RegisteredMemory& to,
                                              std::span<std::byte> destination) {
  return transfer(IBV_WR_RDMA_READ, to, destination, from, from_offset);
}

Result<RemoteMemory::Ticket> RdmaMemory::write(const RegisteredMemory& from,
                                               std::span<const std::byte> source,
                                               const RemoteKey& to, uint64_t to_offset) {
  return transfer(IBV_WR_RDMA_WRITE, from, source, to, to_offset);
}

Result<RemoteMemory::Ticket> RdmaMemory::transfer(ibv_wr_opcode opcode,
                                                  const RegisteredMemory& ours,
                                                  std::span<const std::byte> memory,
                                                  const RemoteKey& theirs, uint64_t offset) {
  if (offset > theirs.bytes || memory.size() > theirs.bytes - offset) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} bytes at offset {} are outside the peer's {} bytes",
                              memory.size(), offset, theirs.bytes));
  }
  const auto whole = ours.memory();
  if (memory.data() < whole.data() || memory.size() > whole.size() ||
      static_cast<size_t>(memory.data() - whole.data()) > whole.size() - memory.size()) {
    return Status(StatusCode::kInvalidArgument, "the memory is not inside its registration");
  }
  const auto* registered = dynamic_cast<const Registered*>(&ours);
  if (registered == nullptr)
    return Status(StatusCode::kInvalidArgument, "the memory is registered with another transport");
  Ticket ticket = 0;
  while (!memory.empty()) {
    const auto piece = memory.first(std::min<uint64_t>(memory.size(), link_.max_message()));
    ibv_sge place{reinterpret_cast<uintptr_t>(piece.data()), static_cast<uint32_t>(piece.size()),
                  registered->region().local_key()};
    ibv_send_wr request{};
    request.opcode = opcode;
    request.sg_list = &place;
    request.num_sge = 1;
    request.wr.rdma.remote_addr = theirs.address + offset;
    request.wr.rdma.rkey = theirs.key;
    FARGPU_ASSIGN_OR_RETURN(ticket, link_.post(request, piece.size() == memory.size()));
    if (ticket == 0) {
      // The queue is full of requests that complete or fail by themselves.
      const uint64_t before = link_.completed();
      FARGPU_RETURN_IF_ERROR(link_.wait(
          RdmaLink::Role::kReceiver, kNoDeadline, [&] { return link_.completed() != before; },
          true));
      continue;
    }
    memory = memory.subspan(piece.size());
    offset += piece.size();
  }
  return ticket;
}

Status RdmaMemory::wait(Ticket ticket, Deadline deadline) {
  return link_.wait(
      RdmaLink::Role::kReceiver, deadline, [&] { return link_.completed() >= ticket; }, true);
}

}  // namespace fargpu::transport
