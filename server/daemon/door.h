// Door: the connections that have been accepted and not yet admitted. There are at most so many;
// for one more than that, one leaves. Those whose hello is being dealt with stay and do not count.
// It is one of the address with most of the others; among such addresses, of the one whose first
// has been there longest. Of that address the one leaves that has been silent longest, or else the
// oldest. On the daemon's event loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "server/handover/handshake.h"

namespace fargpu::server {

class Door {
 public:
  explicit Door(uint32_t most) : most_(most) {}
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Room for one more; false: there is none to be had.
  bool make_room();
  // One leaves, full or not: the process has no descriptor left. False: none can.
  bool evict();
  // Room for one more relay of TLS, which is a process.
  bool make_room_for_relay();

  // Counts it until leave(), which its on_end calls.
  void enter(Handshake& handshake);
  void leave(const Handshake& handshake);
  uint32_t count() const { return count_; }

 private:
  using Connections = std::map<uint64_t, Handshake*>;  // by number, oldest first
  bool evict_one(const std::function<bool(const Handshake&)>& may_leave);
  void tell_of_eviction();

  const uint32_t most_;
  uint32_t count_ = 0;
  uint64_t entered_ = 0;                        // so far: numbers them
  std::map<std::string, Connections> waiting_;  // by address, without the port
  uint64_t evicted_ = 0;                        // since the last line about it
  std::chrono::steady_clock::time_point told_{};
};

// What the names of all connections of a host have in common: the address, of IPv6 its first 64
// bits.
std::string address_of(const std::string& peer);

}  // namespace fargpu::server
