// The sockets of a shared-memory session, and their messages.
//
// The session's unix socket carries, in both directions, one-byte bells ("look at the ring") and
// descriptors (a byte, a number of eight bytes, SCM_RIGHTS). When the peer dies, this socket ends.
// A second socket carries only bells that say "there is room again", so that the sending and the
// receiving thread never read the same socket. No call blocks; each passes MSG_DONTWAIT, because
// the mode of a descriptor is shared with the peer.
//
// Thread rules: ring_consumer, send_descriptor and drain_room_bells by the sending side;
// ring_producer, drain and take by the receiving side.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/fd.h"
#include "common/transport/counter.h"
#include "common/transport/descriptor_passing.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

class ShmSocket {
 public:
  ShmSocket(Fd session, Fd room);

  int session() const { return session_.get(); }
  int room() const { return room_.get(); }

  void ring_consumer();
  void ring_producer();
  Status send_descriptor(uint64_t number, int descriptor);
  // False: the socket is closed.
  bool drain_room_bells();

  // Reads the messages that have arrived. kProtocol when it makes no sense; a closed connection is
  // no error here, see ended().
  Status drain();
  bool ended() const { return ended_; }
  // From the messages that drain() has read; kNotFound.
  Result<Fd> take(uint64_t number);

  // Ends the connection; the descriptors stay open. Any thread.
  void shut_down();
  // In a forked child.
  void abandon();

  Counter send_calls, receive_calls;

 private:
  struct Waiting {
    uint64_t number;
    Fd descriptor;
  };
  Status parse(std::span<const std::byte> bytes);

  Fd session_, room_;
  bool ended_ = false;
  std::vector<Waiting> waiting_;  // room for kMaxWaiting from the beginning
  Fd arriving_;                   // came with the record that is not complete yet
  std::byte record_[9];
  size_t record_bytes_ = 0;
};

// One message with at most two descriptors, or none; exactly `bytes`, for the set-up conversation.
// kTimeout, kLost.
Status send_with_descriptors(int socket, std::span<const std::byte> bytes,
                             std::span<const int> descriptors, Deadline deadline);
Status receive_with_descriptors(int socket, std::span<std::byte> bytes,
                                std::vector<Fd>& descriptors, Deadline deadline);

}  // namespace fargpu::transport
