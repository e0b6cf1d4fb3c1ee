#include "common/transport/rdma/rdma_cm.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/descriptors.h"
#include "common/transport/poll.h"

namespace fargpu::transport {
namespace {

// What rdma_cm wants; the deadline itself is kept by waiting for the event.
int milliseconds_until(Deadline deadline) {
  if (deadline == kNoDeadline) return 60'000;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 1, 60'000));
}

Status no_device(const std::string& where, int error_number) {
  if (error_number == ENODEV || error_number == EADDRNOTAVAIL || error_number == ENOENT) {
    return Status(StatusCode::kNotFound, fmt::format("no RDMA device {}", where));
  }
  return system_error(fmt::format("no RDMA {}", where), error_number);
}

}  // namespace

Status CmEvent::error(const std::string& what) const {
  const char* name = rdma().cm_event_str(event);
  return Status(StatusCode::kLost,
                status < 0 ? fmt::format("{}: {}", system_error(what, -status).message(), name)
                           : fmt::format("{}: {}", what, name));
}

Result<rdma_event_channel*> CmId::create_channel() {
  FARGPU_RETURN_IF_ERROR(rdma_library().status());
  const descriptors::StandardTaken taken;
  rdma_event_channel* channel = rdma().cm_create_event_channel();
  if (channel == nullptr) {
    const int error = errno;
    if (error == ENODEV || error == ENOENT || error == ENOSYS)
      return Status(StatusCode::kNotFound, "no RDMA device on this host");
    return system_error("cannot use rdma_cm", error);
  }
  channel->fd = descriptors::place(Fd(channel->fd)).release();
  ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  return channel;
}

Result<CmId> CmId::create() {
  FARGPU_ASSIGN_OR_RETURN(rdma_event_channel * channel, create_channel());
  rdma_cm_id* id = nullptr;
  if (rdma().cm_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) {
    const int error = errno;
    rdma().cm_destroy_event_channel(channel);
    if (error == ENODEV) return Status(StatusCode::kNotFound, "no RDMA device on this host");
    return system_error("cannot use rdma_cm", error);
  }
  return CmId(channel, id);
}

CmId::CmId(CmId&& other) noexcept
    : channel_(std::exchange(other.channel_, nullptr)),
      id_(std::exchange(other.id_, nullptr)),
      domain_(std::move(other.domain_)) {}

CmId::~CmId() {
  if (domain_ != nullptr || id_ == nullptr) return;
  rdma().cm_destroy_id(id_);
  if (channel_ != nullptr) rdma().cm_destroy_event_channel(channel_);
}

Status CmId::bind(const SocketAddress& local) {
  SocketAddress address = local;
  if (rdma().cm_bind_addr(id_, address.get()) != 0)
    return no_device(fmt::format("at {}", local.host()), errno);
  return Status();
}

Status CmId::resolve(const SocketAddress& remote, Deadline deadline) {
  SocketAddress address = remote;
  const std::string where = fmt::format("on the route to {}", remote.host());
  if (rdma().cm_resolve_addr(id_, nullptr, address.get(), milliseconds_until(deadline)) != 0)
    return no_device(where, errno);
  FARGPU_ASSIGN_OR_RETURN(CmEvent event, next_event(deadline, "no answer " + where));
  if (event.event == RDMA_CM_EVENT_ADDR_RESOLVED) return Status();
  return no_device(where, event.status < 0 ? -event.status : EIO);
}

Status CmId::resolve_route(const std::string& where, Deadline deadline) {
  const std::string what = fmt::format("no rdma route to {}", where);
  if (rdma().cm_resolve_route(id_, milliseconds_until(deadline)) != 0)
    return system_error(what, errno);
  FARGPU_ASSIGN_OR_RETURN(CmEvent event, next_event(deadline, what));
  return event.event == RDMA_CM_EVENT_ROUTE_RESOLVED ? Status() : event.error(what);
}

Status CmId::move_to_own_channel() {
  FARGPU_ASSIGN_OR_RETURN(rdma_event_channel * channel, create_channel());
  if (rdma().cm_migrate_id(id_, channel) != 0) {
    const int error = errno;
    rdma().cm_destroy_event_channel(channel);
    return system_error("cannot move an rdma_cm id", error);
  }
  channel_ = channel;
  return Status();
}

Result<CmEvent> CmId::next_event(Deadline deadline, const std::string& otherwise) {
  for (;;) {
    rdma_cm_event* happened = nullptr;
    if (rdma().cm_get_cm_event(channel_, &happened) == 0) {
      CmEvent event{happened->event, happened->status, happened->id, {}};
      const auto* data = static_cast<const std::byte*>(happened->param.conn.private_data);
      if (data != nullptr) {
        event.private_data.assign(data, data + happened->param.conn.private_data_len);
      }
      rdma().cm_ack_cm_event(happened);
      return event;
    }
    if (errno != EAGAIN && errno != EINTR) return system_error("cannot wait for rdma_cm", errno);
    pollfd entry{channel_->fd, POLLIN, 0};
    FARGPU_ASSIGN_OR_RETURN(const int ready, poll_until(std::span(&entry, 1), deadline));
    if (ready == 0) return Status(StatusCode::kTimeout, otherwise);
  }
}

Result<std::shared_ptr<RdmaDomain>> CmId::make_domain() {
  // From here on the domain frees both, also when it cannot be made.
  auto made = RdmaDomain::create(channel_, id_);
  if (made.ok()) {
    domain_ = *made;
  } else {
    channel_ = nullptr;
    id_ = nullptr;
  }
  return made;
}

void CmId::release() {
  channel_ = nullptr;
  id_ = nullptr;
  domain_.reset();
}

}  // namespace fargpu::transport
