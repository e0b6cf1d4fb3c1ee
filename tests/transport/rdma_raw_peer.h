// The client's end of an rdma session, played by hand: it can post anything at any time.
#pragma once

#include <arpa/inet.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "common/base/check.h"
#include "common/transport/rdma/rdma.h"
#include "common/transport/rdma/rdma_cm.h"
#include "common/transport/rdma/rdma_greeting.h"
#include "tests/transport/frames.h"

namespace fargpu::test {

class RawRdmaPeer {
 public:
  static constexpr unsigned kSends = 512, kReceives = 512;
  static constexpr size_t kBytes = 64 << 10;

  // `ours`: what it says of itself; the cookie is the offer's.
  RawRdmaPeer(const transport::SocketAddress& server, const transport::RdmaOffer& offer,
              const std::function<void(transport::RdmaGreeting&)>& change)
      : id_(std::move(*transport::CmId::create())) {
    const auto deadline = transport::Clock::now() + std::chrono::seconds(20);
    transport::SocketAddress remote = server;
    remote.set_port(offer.port);
    FARGPU_CHECK(id_.resolve(remote, deadline).ok());
    FARGPU_CHECK(id_.resolve_route("the server", deadline).ok());
    domain_ = *id_.make_domain();
    queue_ =
        transport::rdma().create_cq(domain_->context(), kSends + kReceives, nullptr, nullptr, 0);
    FARGPU_CHECK(queue_ != nullptr);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue_;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {kSends, kReceives, 1, 1, 64};
    FARGPU_CHECK(transport::rdma().cm_create_qp(id_.get(), domain_->pd(), &wanted) == 0);
    memory_ = std::move(
        *transport::RdmaBuffer::create(domain_, kBytes, transport::RemoteAccess::kReadWrite));
    for (unsigned i = 0; i < kReceives; ++i) {
      ibv_recv_wr receive{}, *refused = nullptr;
      FARGPU_CHECK(ibv_post_recv(id_.get()->qp, &receive, &refused) == 0);
    }
    transport::RdmaGreeting greeting{transport::kRdmaMagic,
                                     transport::kRdmaVersion,
                                     reinterpret_cast<uintptr_t>(memory_->data()),
                                     memory_->region().remote_key(),
                                     kBytes,
                                     256,
                                     0,
                                     offer.cookie};
    if (change) change(greeting);
    rdma_conn_param parameters{};
    parameters.private_data = &greeting;
    parameters.private_data_len = sizeof greeting;
    parameters.responder_resources = parameters.initiator_depth = 4;
    parameters.retry_count = 6;
    parameters.rnr_retry_count = 6;
    FARGPU_CHECK(transport::rdma().cm_connect(id_.get(), &parameters) == 0);
    const auto event = id_.next_event(deadline, "no answer");
    FARGPU_CHECK(event.ok() && event->event == RDMA_CM_EVENT_ESTABLISHED);
    FARGPU_CHECK(event->private_data.size() >= sizeof theirs);
    std::memcpy(&theirs, event->private_data.data(), sizeof theirs);
  }
  ~RawRdmaPeer() {
    transport::rdma().cm_disconnect(id_.get());
    transport::rdma().cm_destroy_qp(id_.get());
    memory_.reset();
    transport::rdma().destroy_cq(queue_);
    id_.release();
  }

  // `bytes` of memory() to `offset` in the server's ring, with any immediate. 0 bytes: an empty
  // one.
  void write(size_t bytes, uint64_t offset, std::optional<uint32_t> immediate) {
    ibv_send_wr request{};
    request.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = theirs.ring_address + offset;
    request.wr.rdma.rkey = theirs.ring_key;
    post(request, bytes, immediate);
  }
  // A control message, or what looks like one.
  void send(std::optional<uint32_t> immediate, size_t bytes = 0) {
    ibv_send_wr request{};
    request.opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    post(request, bytes, immediate);
  }
  std::span<std::byte> memory() { return {memory_->data(), memory_->size()}; }
  // A frame at the beginning of memory().
  size_t put_frame(const wire::FrameHeader& header) {
    std::memcpy(memory_->data(), &header, sizeof header);
    return sizeof header + header.body_bytes;
  }

  transport::RdmaGreeting theirs{};

 private:
  // What cannot be posted any more does not matter: the server has ended the session.
  void post(ibv_send_wr& request, size_t bytes, std::optional<uint32_t> immediate) {
    ibv_wc completions[16];
    while (ibv_poll_cq(queue_, 16, completions) > 0) {
    }
    ibv_sge place{reinterpret_cast<uintptr_t>(memory_->data()), static_cast<uint32_t>(bytes),
                  memory_->region().local_key()};
    request.sg_list = &place;
    request.num_sge = bytes > 0 ? 1 : 0;
    if (immediate) request.imm_data = htonl(*immediate);
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* refused = nullptr;
    (void)ibv_post_send(id_.get()->qp, &request, &refused);
  }

  transport::CmId id_;
  std::shared_ptr<transport::RdmaDomain> domain_;
  ibv_cq* queue_ = nullptr;
  std::unique_ptr<transport::RdmaBuffer> memory_;
};

}  // namespace fargpu::test
