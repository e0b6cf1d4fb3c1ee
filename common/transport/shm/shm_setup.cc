#include "common/transport/shm/shm_setup.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/descriptors.h"
#include "common/transport/shm/shm.h"
#include "common/transport/shm/shm_socket.h"
#include "common/transport/shm/shm_transport.h"

namespace fargpu::transport {
namespace {

using Message = ShmSetupMessage;

std::string reason_of(const Message& message) {
  return std::string(message.reason, ::strnlen(message.reason, sizeof message.reason));
}

Status check_type(const Message& message, Message::Type expected) {
  if (message.magic != Message::kMagic ||
      (message.type != expected && message.type != Message::kRefusal)) {
    return Status(StatusCode::kProtocol,
                  fmt::format("the peer sent {:#x}, {} while shared memory was set up",
                              message.magic, message.type));
  }
  if (message.type == Message::kRefusal) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("the peer has no shared memory: {}", reason_of(message)));
  }
  return Status();
}

Status send_message(int socket, const Message& message, std::span<const int> descriptors,
                    Deadline deadline) {
  return send_with_descriptors(socket, std::as_bytes(std::span(&message, 1)), descriptors,
                               deadline);
}

// Sends the reason to the peer, so that it does not wait, and returns it to the caller.
Status refuse(int socket, const Status& why, Deadline deadline) {
  Message message;
  message.type = Message::kRefusal;
  why.message().copy(message.reason, sizeof message.reason - 1);
  FARGPU_RETURN_IF_ERROR(send_message(socket, message, {}, deadline));
  return Status(StatusCode::kUnsupported, why.message());
}

Status check_unix_socket(int socket) {
  int type = 0, domain = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) != 0) {
    return system_error(fmt::format("descriptor {} is not a socket", socket), errno);
  }
  length = sizeof domain;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX ||
      type != SOCK_STREAM) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("descriptor {} is not a unix stream socket", socket));
  }
  return Status();
}

struct ServerParts {
  ShmSegment segment;
  Fd room, peers_room;
  ShmParts parts;
};

Result<ServerParts> make_server_parts(int socket, const ShmRings& rings) {
  FARGPU_ASSIGN_OR_RETURN(ShmSegment segment,
                          ShmSegment::create({rings.to_server_bytes, rings.to_client_bytes}));
  Fd room, peers_room;
  FARGPU_RETURN_IF_ERROR(descriptors::make_pair(SOCK_STREAM, room, peers_room));
  FARGPU_ASSIGN_OR_RETURN(ShmParts parts, ShmParts::create(socket));
  return ServerParts{std::move(segment), std::move(room), std::move(peers_room), std::move(parts)};
}

struct ClientParts {
  ShmSegment segment;
  Fd room;
  ShmParts parts;
};

Result<ClientParts> make_client_parts(int socket, const Message& offer,
                                      std::vector<Fd> descriptors) {
  if (offer.version != Message::kVersion) {
    return Status(StatusCode::kVersion,
                  fmt::format("shared memory of version {} is offered, we know {}", offer.version,
                              Message::kVersion));
  }
  if (descriptors.size() != 2) {
    return Status(StatusCode::kProtocol,
                  fmt::format("{} descriptors came instead of 2", descriptors.size()));
  }
  FARGPU_ASSIGN_OR_RETURN(ShmSegment segment,
                          ShmSegment::adopt(std::move(descriptors[0]), offer.sizes));
  FARGPU_RETURN_IF_ERROR(check_unix_socket(descriptors[1].get()));
  FARGPU_ASSIGN_OR_RETURN(ShmParts parts, ShmParts::create(socket));
  return ClientParts{std::move(segment), std::move(descriptors[1]), std::move(parts)};
}

}  // namespace

ShmOptions shm_options(const StreamOptions& options) {
  return {options.receive_limits, options.max_send_body_bytes, options.stall_timeout, options.spin};
}

Result<std::unique_ptr<Transport>> shm_serve(Fd& socket, const ShmRings& rings,
                                             const ShmOptions& options, Deadline deadline) {
  FARGPU_RETURN_IF_ERROR(check_unix_socket(socket.get()));
  auto made = make_server_parts(socket.get(), rings);
  if (!made.ok()) return refuse(socket.get(), made.status(), deadline);
  Message offer;
  offer.type = Message::kOffer;
  offer.sizes = {rings.to_server_bytes, rings.to_client_bytes};
  const int descriptors[] = {made->segment.descriptor(), made->peers_room.get()};
  FARGPU_RETURN_IF_ERROR(send_message(socket.get(), offer, descriptors, deadline));
  Message answer;
  std::vector<Fd> unwanted;
  FARGPU_RETURN_IF_ERROR(receive_with_descriptors(
      socket.get(), std::as_writable_bytes(std::span(&answer, 1)), unwanted, deadline));
  FARGPU_RETURN_IF_ERROR(check_type(answer, Message::kAccept));
  if (!unwanted.empty())
    return Status(StatusCode::kProtocol, "the client sent descriptors of its own");
  made->segment.close_descriptor();
  return make_shm_transport(ShmEnd::kServer, std::move(made->segment), std::move(socket),
                            std::move(made->room), std::move(made->parts), options);
}

Result<std::unique_ptr<Transport>> shm_join(Fd& socket, const ShmOptions& options,
                                            Deadline deadline) {
  FARGPU_RETURN_IF_ERROR(check_unix_socket(socket.get()));
  Message offer;
  std::vector<Fd> descriptors;
  FARGPU_RETURN_IF_ERROR(receive_with_descriptors(
      socket.get(), std::as_writable_bytes(std::span(&offer, 1)), descriptors, deadline));
  FARGPU_RETURN_IF_ERROR(check_type(offer, Message::kOffer));
  auto made = make_client_parts(socket.get(), offer, std::move(descriptors));
  if (!made.ok()) return refuse(socket.get(), made.status(), deadline);
  Message answer;
  answer.type = Message::kAccept;
  FARGPU_RETURN_IF_ERROR(send_message(socket.get(), answer, {}, deadline));
  made->segment.close_descriptor();
  return make_shm_transport(ShmEnd::kClient, std::move(made->segment), std::move(socket),
                            std::move(made->room), std::move(made->parts), options);
}

}  // namespace fargpu::transport
