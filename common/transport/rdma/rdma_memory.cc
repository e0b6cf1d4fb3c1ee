#include "common/transport/rdma/rdma_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

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
  // Overlapping registrations may hide the right one; then the bytes are copied, nothing worse.
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
  return start({IBV_WR_RDMA_READ, to, destination, from, from_offset});
}

Result<RemoteMemory::Ticket> RdmaMemory::write(const RegisteredMemory& from,
                                               std::span<const std::byte> source,
                                               const RemoteKey& to, uint64_t to_offset) {
  return start({IBV_WR_RDMA_WRITE, from, source, to, to_offset});
}

Status RdmaMemory::read_now(const RemoteKey& from, uint64_t from_offset, const RegisteredMemory& to,
                            std::span<std::byte> destination, Deadline deadline) {
  return complete({IBV_WR_RDMA_READ, to, destination, from, from_offset}, deadline);
}

Status RdmaMemory::write_now(const RegisteredMemory& from, std::span<const std::byte> source,
                             const RemoteKey& to, uint64_t to_offset, Deadline deadline) {
  return complete({IBV_WR_RDMA_WRITE, from, source, to, to_offset}, deadline);
}

Result<uint32_t> RdmaMemory::check(const Transfer& transfer) {
  const auto& [opcode, ours, memory, theirs, offset] = transfer;
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
  return registered->region().local_key();
}

Result<RemoteMemory::Ticket> RdmaMemory::post_part(Transfer& transfer, uint32_t local_key,
                                                   uint64_t limit, bool signal) {
  const auto part = transfer.memory.first(
      std::min<uint64_t>({transfer.memory.size(), link_.max_message(), limit}));
  ibv_sge place{reinterpret_cast<uintptr_t>(part.data()), static_cast<uint32_t>(part.size()),
                local_key};
  ibv_send_wr request{};
  request.opcode = transfer.opcode;
  request.sg_list = &place;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = transfer.theirs.address + transfer.offset;
  request.wr.rdma.rkey = transfer.theirs.key;
  FARGPU_ASSIGN_OR_RETURN(const Ticket ticket,
                          link_.post(request, signal || part.size() == transfer.memory.size()));
  if (ticket == 0) return ticket;
  transfer.memory = transfer.memory.subspan(part.size());
  transfer.offset += part.size();
  return ticket;
}

Result<RemoteMemory::Ticket> RdmaMemory::start(Transfer transfer) {
  FARGPU_ASSIGN_OR_RETURN(const uint32_t local_key, check(transfer));
  Ticket last = 0;
  while (!transfer.memory.empty()) {
    FARGPU_ASSIGN_OR_RETURN(const Ticket ticket, post_part(transfer, local_key, UINT64_MAX, false));
    if (ticket != 0) {
      last = ticket;
      continue;
    }
    // The queue is full of requests that complete or fail by themselves.
    const uint64_t before = link_.completed();
    FARGPU_RETURN_IF_ERROR(link_.wait(
        RdmaLink::Role::kReceiver, kNoDeadline, [&] { return link_.completed() != before; }, true));
  }
  return last;
}

Status RdmaMemory::complete(Transfer transfer, Deadline deadline) {
  constexpr size_t kUnderWay = 4;
  constexpr uint64_t kPart = 1u << 20;
  FARGPU_ASSIGN_OR_RETURN(const uint32_t local_key, check(transfer));
  const auto wait = [&](auto ready) {
    Status status = link_.wait_by_polling(deadline, ready);
    if (status.code() != StatusCode::kTimeout) return status;
    // Transfers under way cannot be cancelled, and their memory is about to be reused.
    return link_.lose(Status(StatusCode::kLost, "connection lost: a transfer did not end in time"));
  };
  Ticket tickets[kUnderWay] = {};  // as a ring; 0 is complete from the beginning
  for (size_t next = 0; !transfer.memory.empty();) {
    FARGPU_RETURN_IF_ERROR(
        wait([&, oldest = tickets[next]] { return link_.completed() >= oldest; }));
    const uint64_t before = link_.completed();
    FARGPU_ASSIGN_OR_RETURN(const Ticket ticket, post_part(transfer, local_key, kPart, true));
    if (ticket == 0) {  // the queue is full
      FARGPU_RETURN_IF_ERROR(wait([&] { return link_.completed() != before; }));
      continue;
    }
    tickets[next] = ticket;
    next = (next + 1) % kUnderWay;
  }
  const Ticket last = *std::max_element(std::begin(tickets), std::end(tickets));
  return wait([&] { return link_.completed() >= last; });
}

Status RdmaMemory::wait(Ticket ticket, Deadline deadline) {
  return link_.wait(
      RdmaLink::Role::kReceiver, deadline, [&] { return link_.completed() >= ticket; }, true);
}

}  // namespace fargpu::transport
