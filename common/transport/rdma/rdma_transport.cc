#include "common/transport/rdma/rdma_transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/transport/frame_assembler.h"
#include "common/transport/rdma/rdma_memory.h"
#include "common/transport/rdma/rdma_sender.h"

namespace fargpu::transport {
namespace {

// One receive() returns after about this much, so that a fast peer cannot hold the caller for ever.
constexpr size_t kReceiveBudgetBytes = 4 << 20;

class RdmaTransport final : public Transport {
 public:
  RdmaTransport(std::shared_ptr<RdmaDomain> domain, std::unique_ptr<RdmaLink> link,
                std::unique_ptr<RdmaBuffer> ring, std::unique_ptr<RdmaBuffer> staging,
                const RdmaOptions& options, std::string description)
      : description_(std::move(description)),
        max_slot_bytes_(sizeof(wire::FrameHeader) + options.max_send_body_bytes),
        ring_(std::move(ring)),
        link_(std::move(link)),
        memory_(std::move(domain), *link_),
        sender_(*link_, memory_.regions(), std::move(staging), max_slot_bytes_,
                options.stall_timeout),
        assembler_(options.receive_limits) {}
  ~RdmaTransport() override { close(); }

  Capabilities capabilities() const override {
    Capabilities capabilities;
    capabilities.name = "rdma";
    capabilities.max_slot_bytes = max_slot_bytes_;
    capabilities.remote_memory = true;
    capabilities.crosses_network = true;
    return capabilities;
  }

  Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline) override {
    if (link_->lost()) return link_->lost_status();
    auto slot = sender_.reserve(bytes, deadline);
    if (!slot.ok() && is_fatal(slot.status())) return link_->lose(slot.status());
    return slot;
  }

  Status commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline) override {
    if (link_->lost()) return link_->lost_status();
    Status status = sender_.commit(bytes, bulk, deadline);
    if (status.ok() || status.code() == StatusCode::kInvalidArgument) return status;
    return link_->lose(std::move(status));
  }

  Status flush(Deadline deadline) override {
    if (link_->lost()) return link_->lost_status();
    Status status = sender_.flush(deadline);
    if (status.ok() || !is_fatal(status)) return status;
    return link_->lose(std::move(status));
  }

  Result<size_t> receive(FrameHandler& handler, Deadline deadline) override {
    if (link_->closed_here()) return link_->lost_status();
    link_->look_at_descriptor();
    return receive_some(handler, deadline);
  }

  void wake() override {
    woken_ = true;
    link_->nudge_receiver();
  }

  RemoteMemory* remote_memory() override { return &memory_; }

  int poll_descriptor() const override { return link_->poll_descriptor(); }
  int peer_socket() const override { return link_->bootstrap_socket(); }
  bool arm() override { return link_->arm_descriptor() && !woken_; }

  void close() override { link_->close(); }
  void abandon_after_fork() override { link_->abandon(); }

  Statistics statistics() const override {
    return {sender_.frames.get(), frames_received_.get(), sender_.bytes.get(),
            bytes_received_.get(), link_->system_calls()};
  }
  std::string describe() const override { return description_; }

 private:
  static bool is_fatal(const Status& status) {
    return status.code() != StatusCode::kTimeout && status.code() != StatusCode::kInvalidArgument;
  }

  Result<size_t> receive_some(FrameHandler& handler, Deadline deadline) {
    for (;;) {
      Status status = link_->wait(RdmaLink::Role::kReceiver, deadline, [&] {
        return woken_.load(std::memory_order_relaxed) ||
               link_->arrived_bytes() != link_->consumed_bytes();
      });
      if (link_->closed_here()) return link_->lost_status();
      if (!status.ok()) {
        if (status.code() == StatusCode::kTimeout) return size_t{0};
        return assembler_.at_boundary()
                   ? status
                   : Status(StatusCode::kLost, status.message() + " (in the middle of a frame)");
      }
      if (woken_.load(std::memory_order_relaxed) && woken_.exchange(false)) {
        link_->drain_nudges();
        return size_t{0};
      }
      auto delivered = deliver(handler);
      if (!delivered.ok()) return link_->lose(delivered.status());
      if (*delivered > 0) return delivered;
    }
  }

  Result<size_t> deliver(FrameHandler& handler) {
    size_t delivered = 0, budget = kReceiveBudgetBytes;
    for (uint64_t there;
         budget > 0 && (there = link_->arrived_bytes() - link_->consumed_bytes()) > 0;) {
      // Copied out of the ring before it is used: the peer can write there at any time.
      size_t filled = 0;
      for (std::span<std::byte> room : assembler_.writable()) {
        while (!room.empty() && filled < there) {
          const size_t offset = ring_->offset(link_->consumed_bytes() + filled);
          const size_t take =
              std::min({room.size(), static_cast<size_t>(there) - filled, ring_->size() - offset});
          std::memcpy(room.data(), ring_->data() + offset, take);
          room = room.subspan(take);
          filled += take;
        }
      }
      link_->consume(filled);
      link_->give_credit();
      bytes_received_.add(filled);
      FARGPU_ASSIGN_OR_RETURN(const size_t frames, assembler_.advance(filled, handler));
      frames_received_.add(frames);
      delivered += frames;
      budget -= std::min(budget, filled);
      if (link_->closed_here()) break;
    }
    return delivered;
  }

  const std::string description_;
  const size_t max_slot_bytes_;
  // outlives the queue pair, which lets the peer write there
  const std::unique_ptr<RdmaBuffer> ring_;
  const std::unique_ptr<RdmaLink> link_;
  RdmaMemory memory_;
  RdmaSender sender_;
  FrameAssembler assembler_;
  Counter frames_received_, bytes_received_;
  std::atomic<bool> woken_{false};
};

}  // namespace

std::unique_ptr<Transport> make_rdma_transport(std::shared_ptr<RdmaDomain> domain,
                                               std::unique_ptr<RdmaLink> link,
                                               std::unique_ptr<RdmaBuffer> ring,
                                               std::unique_ptr<RdmaBuffer> staging,
                                               const RdmaOptions& options,
                                               std::string description) {
  return std::make_unique<RdmaTransport>(std::move(domain), std::move(link), std::move(ring),
                                         std::move(staging), options, std::move(description));
}

}  // namespace fargpu::transport
