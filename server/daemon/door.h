// Door: the connections that have been accepted and not yet admitted. There are at most so many;
// for one more than that, one leaves: of the address with most of them the one that has been silent
// longest, or else the oldest that has been answered or has said a part of its hello. Connections
// whose hello is being dealt with stay. On the daemon's event loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
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
  using Connections = std::list<Handshake*>;  // oldest first
  bool evict_one(const std::function<bool(const Handshake&)>& may_leave);
  void tell_of_eviction();

  const uint32_t most_;
  uint32_t count_ = 0;
  std::map<std::string, Connections> waiting_;  // by address, without the port
  uint64_t evicted_ = 0;                        // since the last line about it
  std::chrono::steady_clock::time_point told_{};
};

// The part of a peer's name that all connections of its host have: without the port; of IPv6 the
// first 64 bits.
std::string address_of(const std::string& peer);

}  // namespace fargpu::server
