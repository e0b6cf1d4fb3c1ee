// LinkWay: one direction of an emulated link, which several connections may share. Connections with
// bytes to send get equal parts of it, as if they took turns packet by packet.
//
// A frame's size is its time on an otherwise empty link. A connection's frames pass one behind the
// other. Pure logic under a lock, with the clock of its callers; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "common/transport/transport.h"

namespace fargpu::transport {

class LinkWay {
 public:
  using Time = Clock::time_point;
  static constexpr size_t kMostConnections = 4;
  // Takes part from now on: the number of the connection.
  size_t join();
  // Puts a frame of a connection behind its others. Returns the frame's place: what the
  // connection's frames have taken up to its end. Whole ticks: sums of fractions that are added in
  // another order would not meet.
  int64_t add(size_t connection, double nanoseconds, Time now);
  // How far apart two places are that so much time of an otherwise empty link lies between.
  static int64_t length(double nanoseconds);
  // When the connection's frames up to this place have passed, or before now if they have. Frames
  // added to other connections meanwhile make it later, never earlier.
  Time passed(size_t connection, int64_t place, Time now);

 private:
  static constexpr int64_t kTicks = 1024;  // in a nanosecond
  struct Connection {
    int64_t waits = 0;  // ticks of frames that have not passed
    int64_t done = 0;   // of frames that have
  };
  using Connections = std::array<Connection, kMostConnections>;
  // Lets at most so many ticks pass, until the next connection has nothing left. Returns how many;
  // 0: nothing waits, or they are fewer than connections.
  static int64_t pass(Connections& connections, int64_t most);
  void go_on(Time now);

  std::mutex mutex_;
  Connections connections_;  // guarded by mutex_, as are these two
  size_t count_ = 0;
  Time now_{};
};

}  // namespace fargpu::transport
