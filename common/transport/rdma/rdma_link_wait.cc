// RdmaLink: sleeping, the descriptor for event loops, and how the loss of the peer is noticed.
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "common/base/descriptors.h"
#include "common/transport/poll.h"
#include "common/transport/rdma/rdma_gid.h"
#include "common/transport/rdma/rdma_link.h"

namespace fargpu::transport {
namespace {

// Shares of lost_after. A peer that vanishes is noticed by a probe, after kProbe and the adapter's
// retries (rdma_connect.cc gives them kRetries); a port that goes down after kProbe and kPortDown.
constexpr double kProbe = 0.25, kPortDown = 0.4, kPortCheck = 0.05;

template <typename Duration>
Clock::duration share(Duration whole, double part) {
  return std::chrono::duration_cast<Clock::duration>(whole * part);
}

}  // namespace

Status RdmaLink::connected(const RdmaRing& peer_ring, Fd bootstrap) {
  peer_ring_ = peer_ring;
  bootstrap_ = std::move(bootstrap);
  poller_ = descriptors::make([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (!poller_.valid()) return system_error("cannot create an epoll descriptor", errno);
  for (int descriptor :
       {channel_->fd, event(Role::kReceiver).get(), domain_->events()->fd, bootstrap_.get()}) {
    if (descriptor < 0) continue;
    epoll_event wanted{};
    wanted.events = EPOLLIN | EPOLLRDHUP;
    if (::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, descriptor, &wanted) != 0)
      return system_error("cannot watch a descriptor", errno);
  }
  ibv_port_attr port{};
  rdma().query_port(domain_->context(), domain_->id()->port_num,
                    reinterpret_cast<_compat_ibv_port_attr*>(&port));
  max_message_ = std::clamp<uint64_t>(port.max_msg_sz, 4096, 1u << 20);
  std::lock_guard lock(connection_mutex_);
  next_look_ = Clock::now() + share(options_.lost_after, kProbe);
  connected_ = true;
  return Status();
}

unsigned RdmaLink::path_mtu() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  if (rdma().query_qp(pair_, &attributes, IBV_QP_PATH_MTU, &initial) != 0) return 0;
  return 128u << attributes.path_mtu;
}

std::string RdmaLink::route() const {
  ibv_context* const context = domain_->context();
  const auto port = static_cast<uint8_t>(domain_->id()->port_num);
  std::string text = fmt::format("{} port {}", context->device->name, port);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  if (rdma().query_qp(pair_, &attributes, IBV_QP_AV, &initial) == 0 &&
      attributes.ah_attr.is_global != 0) {
    const auto gid = query_gid(context, port, attributes.ah_attr.grh.sgid_index);
    if (gid) text += ", " + gid->text();
  }
  return fmt::format("{}, path MTU {}", text, path_mtu());
}

// --- sleeping ---

void RdmaLink::arm(bool sends) {
  // Fails only on a broken device, whose error the completion queues show.
  (void)ibv_req_notify_cq(receive_queue_, 0);
  if (sends) (void)ibv_req_notify_cq(send_queue_, 0);
  system_calls_.fetch_add(sends ? 2 : 1, std::memory_order_relaxed);
}

void RdmaLink::drain_channel(Role role) {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (rdma().get_cq_event(channel_, &queue, &context) == 0) rdma().ack_cq_events(queue, 1);
  system_calls_.fetch_add(1, std::memory_order_relaxed);
  // The notification may have been meant for the other role, and is used up: wake that role, so
  // that it polls and arms again.
  if (role != Role::kReceiver && (asleep(Role::kReceiver) || watched_)) nudge_receiver();
  if (role != Role::kSender && asleep(Role::kSender)) event(Role::kSender).signal();
}

void RdmaLink::sleep(Role role, Deadline until) {
  Clock::time_point next_look;
  {
    std::lock_guard lock(connection_mutex_);
    next_look = next_look_;
  }
  pollfd descriptors[4] = {{channel_->fd, POLLIN, 0},
                           {event(role).get(), POLLIN, 0},
                           {domain_->events()->fd, POLLIN, 0},
                           {bootstrap_.get(), POLLIN, 0}};
  system_calls_.fetch_add(1, std::memory_order_relaxed);
  auto ready =
      poll_until(std::span(descriptors, bootstrap_.valid() ? 4 : 3), std::min(until, next_look));
  if (!ready.ok()) {
    (void)lose(ready.status());
    return;
  }
  if (*ready == 0 && next_look < until) look_at_link();
  if (descriptors[0].revents != 0) drain_channel(role);
  if (descriptors[1].revents != 0) event(role).drain();
  if (descriptors[2].revents != 0 || descriptors[3].revents != 0) look_at_connection();
}

bool RdmaLink::arm_descriptor() {
  if (lost()) return false;
  watched_ = true;
  arm(false);
  poll(Role::kReceiver, true);
  return arrived_bytes() == consumed_bytes() && !lost();
}

void RdmaLink::look_at_descriptor() {
  if (!watched_ || !watched_.exchange(false)) return;
  drain_channel(Role::kReceiver);
  drain_nudges();
  look_at_connection();
}

// --- loss ---

void RdmaLink::look_at_connection() {
  std::unique_lock lock(connection_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  rdma_cm_event* happened = nullptr;
  while (rdma().cm_get_cm_event(domain_->events(), &happened) == 0) {
    const rdma_cm_event_type what = happened->event;
    rdma().cm_ack_cm_event(happened);
    if (what == RDMA_CM_EVENT_DISCONNECTED) {
      lose_to_peer("connection lost: the peer is gone");
    } else if (what == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      (void)lose(Status(StatusCode::kLost, "connection lost: the RDMA device was removed"), true);
    }
  }
  if (!bootstrap_.valid() || lost()) return;
  char byte = 0;
  const ssize_t got = ::recv(bootstrap_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) {
    (void)lose(Status(StatusCode::kProtocol,
                      "the peer sent bytes on the socket of a session that uses rdma"));
  } else if (got == 0) {
    lose_to_peer("connection lost: the peer is gone");
  } else if (errno != EAGAIN && errno != EINTR) {
    lose_to_peer("connection lost: the peer's host is gone");
  }
}

void RdmaLink::look_at_link() {
  std::unique_lock lock(connection_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const auto now = Clock::now();
  ibv_port_attr port{};
  const int failed = rdma().query_port(domain_->context(), domain_->id()->port_num,
                                       reinterpret_cast<_compat_ibv_port_attr*>(&port));
  system_calls_.fetch_add(1, std::memory_order_relaxed);
  if (failed == 0 && port.state == IBV_PORT_ACTIVE) {
    port_down_since_ = {};
    next_look_ = now + share(options_.lost_after, kProbe);
  } else {
    if (port_down_since_ == Clock::time_point{}) port_down_since_ = now;
    next_look_ = now + share(options_.lost_after, kPortCheck);
    if (now - port_down_since_ >= share(options_.lost_after, kPortDown)) {
      (void)lose(Status(StatusCode::kLost,
                        fmt::format("connection lost: port {}/{} is down",
                                    domain_->context()->device->name, domain_->id()->port_num)),
                 true);
    }
    return;
  }
  // An empty write asks nothing of the peer but its adapter's acknowledgement; without that the
  // queue pair fails.
  const uint64_t arrived = arrived_messages_.load(std::memory_order_relaxed);
  if (arrived == arrived_at_look_ && completed() >= probe_) {
    ibv_send_wr probe{};
    probe.opcode = IBV_WR_RDMA_WRITE;
    probe.wr.rdma.remote_addr = peer_ring_.address;
    probe.wr.rdma.rkey = peer_ring_.key;
    if (auto posted = post(probe, true, true); posted.ok() && *posted != 0) probe_ = *posted;
  }
  arrived_at_look_ = arrived;
}

void RdmaLink::lose_to_peer(const char* why) {
  poll(Role::kNobody, true);  // takes what the peer sent before, perhaps a bye
  (void)lose(Status(StatusCode::kLost, why), true);
}

Status RdmaLink::lose(Status why, bool by_peer) {
  Status status = loss_.record(std::move(why), [this] {
    // The queue pair goes into its error state, which ends everything that is under way, and the
    // peer is told.
    if (connected_) rdma().cm_disconnect(domain_->id());
    event(Role::kSender).signal();
    nudge_receiver();
  });
  if (!by_peer) closed_here_.store(true, std::memory_order_release);
  return status;
}

void RdmaLink::abandon() {
  domain_->abandon();
  closed_here_.store(true, std::memory_order_release);
  loss_.abandon();
  forget_descriptor(channel_->fd);
  bootstrap_.reset();
  poller_.reset();
  for (EventFd& event : events_) event.reset();
}

}  // namespace fargpu::transport
