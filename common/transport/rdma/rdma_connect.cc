// How two ends connect: rdma_cm, a cookie, and the description of each end's ring.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/transport/poll.h"
#include "common/transport/rdma/rdma.h"
#include "common/transport/rdma/rdma_cm.h"
#include "common/transport/rdma/rdma_greeting.h"
#include "common/transport/rdma/rdma_transport.h"

namespace fargpu::transport {
namespace {

constexpr uint8_t kRetries = 6;      // after the first try; Soft-RoCE takes 7 for "without end"
constexpr double kRetryShare = 0.7;  // of lost_after, for all tries; rdma_link_wait.cc has the rest

bool is_buffer_size(uint32_t bytes) {
  return bytes >= (64u << 10) && bytes <= (1u << 30) && std::has_single_bit(bytes);
}

// An end that is being connected.
struct End {
  std::shared_ptr<RdmaDomain> domain;
  std::unique_ptr<RdmaLink> link;
  std::unique_ptr<RdmaBuffer> ring, staging;

  RdmaGreeting greeting(const std::array<std::byte, 16>& cookie) const {
    return {kRdmaMagic,
            kRdmaVersion,
            reinterpret_cast<uintptr_t>(ring->data()),
            ring->region().remote_key(),
            static_cast<uint32_t>(ring->size()),
            kRdmaMessages,
            0,
            cookie};
  }
};

Result<End> make_end(std::shared_ptr<RdmaDomain> domain, const RdmaOptions& options) {
  End end;
  end.domain = std::move(domain);
  FARGPU_ASSIGN_OR_RETURN(
      end.ring, RdmaBuffer::create(end.domain, options.ring_bytes, RemoteAccess::kReadWrite));
  FARGPU_ASSIGN_OR_RETURN(
      end.staging, RdmaBuffer::create(end.domain, options.staging_bytes, RemoteAccess::kNone));
  FARGPU_ASSIGN_OR_RETURN(end.link, RdmaLink::create(end.domain, {options.spin, options.lost_after,
                                                                  options.ring_bytes}));
  return end;
}

Result<std::unique_ptr<Transport>> finish(End end, const RdmaGreeting& peer,
                                          const RdmaOptions& options, const SocketAddress& remote,
                                          Fd& bootstrap) {
  if (peer.magic != kRdmaMagic || peer.version != kRdmaVersion ||
      !is_buffer_size(peer.ring_bytes) || peer.messages < 16) {
    return Status(StatusCode::kProtocol,
                  fmt::format("{} is no fargpu of this version", remote.text()));
  }
  FARGPU_RETURN_IF_ERROR(end.link->connected(
      {peer.ring_address, peer.ring_key, peer.ring_bytes, peer.messages}, std::move(bootstrap)));
  std::string description =
      fmt::format("rdma {}/{} {} mtu {}", end.domain->context()->device->name,
                  end.domain->id()->port_num, remote.text(), end.link->path_mtu());
  return make_rdma_transport(std::move(end.domain), std::move(end.link), std::move(end.ring),
                             std::move(end.staging), options, std::move(description));
}

Status checked(RdmaOptions& options) {
  for (uint32_t bytes : {options.ring_bytes, options.staging_bytes}) {
    if (!is_buffer_size(bytes)) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("an rdma buffer of {} bytes: 64 KiB to 1 GiB, a power of two", bytes));
    }
  }
  options.max_send_body_bytes = std::min(options.max_send_body_bytes & ~7u, 16u << 20);
  return Status();
}

// The adapter repeats what is not acknowledged after 4.096 us * 2^timeout, and may take four times
// as long.
void set_ack_timeout(rdma_cm_id* id, std::chrono::milliseconds lost_after) {
  const double one_try =
      1e-3 * static_cast<double>(lost_after.count()) * kRetryShare / (4 * (kRetries + 1));
  auto timeout =
      static_cast<uint8_t>(std::clamp(std::round(std::log2(one_try / 4.096e-6)), 12.0, 20.0));
  // Old kernels do not know this option; theirs is a second per try or so.
  (void)rdma().cm_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                             sizeof timeout);
}

rdma_conn_param parameters(const RdmaDomain& domain, const RdmaGreeting& greeting) {
  ibv_device_attr device{};
  rdma().query_device(domain.context(), &device);
  rdma_conn_param made{};
  made.private_data = &greeting;
  made.private_data_len = sizeof greeting;
  made.responder_resources = static_cast<uint8_t>(std::clamp(device.max_qp_rd_atom, 1, 16));
  made.initiator_depth = static_cast<uint8_t>(std::clamp(device.max_qp_init_rd_atom, 1, 16));
  made.retry_count = kRetries;
  made.rnr_retry_count = 6;  // never used: credits ensure that a receive is posted
  return made;
}

bool same_cookie(const std::array<std::byte, 16>& left, const std::array<std::byte, 16>& right) {
  unsigned different = 0;  // in constant time
  for (size_t i = 0; i < left.size(); ++i)
    different |= std::to_integer<unsigned>(left[i] ^ right[i]);
  return different == 0;
}

Status rejected(const CmEvent& event, const std::string& where) {
  RdmaRejection rejection{};
  if (event.private_data.size() >= sizeof rejection)
    std::memcpy(&rejection, event.private_data.data(), sizeof rejection);
  const char* why = "no session waits there";
  if (rejection.magic == kRdmaMagic) {
    why = rejection.reason == 1   ? "the cookie is not that of the session"
          : rejection.reason == 2 ? "it has no memory or adapter resources for it"
                                  : "it speaks another version";
  }
  return Status(StatusCode::kRefused,
                fmt::format("{} refused the rdma connection: {}", where, why));
}

// --- the server's end ---

class Acceptor final : public RdmaAcceptor {
 public:
  Acceptor(CmId listener, RdmaOptions options, RdmaOffer offer)
      : listener_(std::move(listener)), options_(options), offer_(offer) {}

  RdmaOffer offer() const override { return offer_; }

  Result<std::unique_ptr<Transport>> accept(Fd& bootstrap, Deadline deadline) override {
    for (;;) {
      FARGPU_ASSIGN_OR_RETURN(CmEvent request,
                              listener_.next_event(deadline, "no rdma connection came"));
      if (request.event != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
      CmId id = CmId::adopt(request.id);
      RdmaGreeting greeting{};
      // rdma_cm pads what is shorter.
      if (request.private_data.size() >= sizeof greeting)
        std::memcpy(&greeting, request.private_data.data(), sizeof greeting);
      if (greeting.magic != kRdmaMagic || !same_cookie(greeting.cookie, offer_.cookie)) {
        reject(id, 1);
        continue;  // somebody else; the deadline ends this
      }
      if (greeting.version != kRdmaVersion) {
        reject(id, 3);
        return Status(StatusCode::kVersion,
                      fmt::format("the client's rdma is version {}", greeting.version));
      }
      return answer(std::move(id), greeting, bootstrap);
    }
  }

 private:
  static void reject(const CmId& id, uint32_t reason) {
    const RdmaRejection rejection{kRdmaMagic, reason};
    // If the id was destroyed with its domain, that has rejected the connection.
    if (id.get() != nullptr) rdma().cm_reject(id.get(), &rejection, sizeof rejection);
  }

  Result<std::unique_ptr<Transport>> answer(CmId id, const RdmaGreeting& greeting, Fd& bootstrap) {
    auto end = prepare(id);
    if (!end.ok()) {
      reject(id, 2);
      return end.status();
    }
    set_ack_timeout(id.get(), options_.lost_after);
    const RdmaGreeting ours = end->greeting({});
    rdma_conn_param wanted = parameters(*end->domain, ours);
    if (rdma().cm_accept(id.get(), &wanted) != 0)
      return system_error("cannot accept the rdma connection", errno);
    auto event = id.next_event(Clock::now() + options_.lost_after, "");
    if (!event.ok())
      return Status(StatusCode::kLost, "the client did not finish its rdma connection");
    if (event->event != RDMA_CM_EVENT_ESTABLISHED)
      return event->error("the client's rdma connection failed");
    FARGPU_ASSIGN_OR_RETURN(SocketAddress remote,
                            SocketAddress::from(&id.get()->route.addr.dst_addr));
    id.release();  // the domain owns it, with its event channel
    return finish(std::move(*end), greeting, options_, remote, bootstrap);
  }

  Result<End> prepare(CmId& id) {
    // Away from the listener's events, to a channel of its own.
    FARGPU_RETURN_IF_ERROR(id.move_to_own_channel());
    FARGPU_ASSIGN_OR_RETURN(auto domain, id.make_domain());
    return make_end(std::move(domain), options_);
  }

  CmId listener_;
  const RdmaOptions options_;
  const RdmaOffer offer_;
};

}  // namespace

Result<std::unique_ptr<RdmaAcceptor>> RdmaAcceptor::listen(const SocketAddress& local,
                                                           RdmaOptions options) {
  FARGPU_RETURN_IF_ERROR(checked(options));
  FARGPU_ASSIGN_OR_RETURN(CmId listener, CmId::create());
  SocketAddress address = local;
  address.set_port(0);
  FARGPU_RETURN_IF_ERROR(listener.bind(address));
  if (rdma().cm_listen(listener.get(), 4) != 0) {
    return system_error(fmt::format("cannot listen for rdma at {}", local.host()), errno);
  }
  RdmaOffer offer;
  offer.port = ntohs(rdma().cm_get_src_port(listener.get()));
  if (::getrandom(offer.cookie.data(), offer.cookie.size(), 0) !=
      static_cast<ssize_t>(offer.cookie.size()))
    return system_error("cannot make a cookie", errno);
  return std::unique_ptr<RdmaAcceptor>(
      std::make_unique<Acceptor>(std::move(listener), options, offer));
}

Result<std::unique_ptr<Transport>> rdma_connect(SocketAddress remote, const RdmaOffer& offer,
                                                RdmaOptions options, Fd& bootstrap,
                                                Deadline deadline) {
  FARGPU_RETURN_IF_ERROR(checked(options));
  remote.set_port(offer.port);
  const std::string where = remote.text();
  FARGPU_ASSIGN_OR_RETURN(CmId id, CmId::create());
  FARGPU_RETURN_IF_ERROR(id.resolve(remote, deadline));
  set_ack_timeout(id.get(), options.lost_after);
  FARGPU_RETURN_IF_ERROR(id.resolve_route(where, deadline));
  FARGPU_ASSIGN_OR_RETURN(auto domain, id.make_domain());
  FARGPU_ASSIGN_OR_RETURN(End end, make_end(std::move(domain), options));
  const RdmaGreeting ours = end.greeting(offer.cookie);
  rdma_conn_param wanted = parameters(*end.domain, ours);
  if (rdma().cm_connect(id.get(), &wanted) != 0)
    return system_error(fmt::format("cannot connect to {} by rdma", where), errno);
  FARGPU_ASSIGN_OR_RETURN(CmEvent event,
                          id.next_event(deadline, where + " did not answer by rdma"));
  if (event.event == RDMA_CM_EVENT_REJECTED) return rejected(event, where);
  if (event.event != RDMA_CM_EVENT_ESTABLISHED)
    return event.error(where + " cannot be reached by rdma");
  RdmaGreeting theirs{};
  if (event.private_data.size() >= sizeof theirs)
    std::memcpy(&theirs, event.private_data.data(), sizeof theirs);
  id.release();
  return finish(std::move(end), theirs, options, remote, bootstrap);
}

}  // namespace fargpu::transport
