// The client's end of a shared-memory session, played by hand: it can write anything anywhere in
// the shared memory and on the sockets.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <span>
#include <thread>

#include "common/base/check.h"
#include "common/transport/shm/shm.h"
#include "common/transport/shm/shm_setup.h"
#include "common/transport/shm/shm_socket.h"
#include "tests/transport/frames.h"

namespace fargpu::test {

inline std::pair<Fd, Fd> unix_sockets() {
  int ends[2];
  FARGPU_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

inline transport::Deadline soon() { return transport::Clock::now() + std::chrono::seconds(30); }

struct RawPeer {
  // Plays shm_join on `session`, without any check.
  explicit RawPeer(Fd session_socket) : session(std::move(session_socket)) {
    FARGPU_CHECK(transport::receive_with_descriptors(session.get(),
                                                     std::as_writable_bytes(std::span(&offer, 1)),
                                                     descriptors, soon())
                     .ok());
    FARGPU_CHECK(descriptors.size() == 2);
    segment.emplace(
        std::move(*transport::ShmSegment::adopt(Fd(::dup(descriptors[0].get())), offer.sizes)));
    transport::ShmSetupMessage answer;
    answer.type = transport::ShmSetupMessage::kAccept;
    FARGPU_CHECK(transport::send_with_descriptors(session.get(),
                                                  std::as_bytes(std::span(&answer, 1)), {}, soon())
                     .ok());
  }

  transport::RingControl& out() { return *segment->to_server().control; }
  transport::RingControl& in() { return *segment->to_client().control; }
  std::span<std::byte> out_data() {
    return {segment->to_server().data, segment->to_server().capacity};
  }
  // At the beginning of the ring, for the first frame.
  void write_at_begin(const wire::FrameHeader& header, Bytes rest) {
    std::memcpy(out_data().data(), &header, sizeof header);
    if (!rest.empty()) std::memcpy(out_data().data() + sizeof header, rest.data(), rest.size());
  }
  void bell() {
    const std::byte bell{1};
    (void)::send(session.get(), &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  Fd session;
  transport::ShmSetupMessage offer;
  std::vector<Fd> descriptors;  // memory, room socket
  std::optional<transport::ShmSegment> segment;
};

struct ServerAndPeer {
  explicit ServerAndPeer(transport::ShmOptions options = {},
                         transport::ShmRings rings = {1 << 16, 1 << 16}) {
    auto [client_socket, server_socket] = unix_sockets();
    std::thread joiner([&, client = &client_socket] { peer.emplace(std::move(*client)); });
    auto made = transport::shm_serve(server_socket, rings, options, soon());
    joiner.join();
    FARGPU_CHECK(made.ok());
    server = std::move(*made);
  }
  std::unique_ptr<transport::Transport> server;
  std::optional<RawPeer> peer;
};

}  // namespace fargpu::test
