#include "server/daemon/door.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "common/base/log.h"

namespace fargpu::server {
namespace {

using Stage = Handshake::Stage;

// Each is a process of a few MB, which a stranger gets for one byte.
constexpr ptrdiff_t kMostRelays = 256;
constexpr auto kBetweenLines = std::chrono::seconds(10);

bool is_silent(const Handshake& handshake) { return handshake.stage() == Stage::kSilent; }
bool may_leave(const Handshake& handshake) { return handshake.stage() != Stage::kAsked; }
bool has_relay(const Handshake& handshake) { return handshake.encrypted(); }
bool may_leave_with_relay(const Handshake& handshake) {
  return has_relay(handshake) && may_leave(handshake);
}

}  // namespace

std::string address_of(const std::string& peer) {
  if (!peer.starts_with('[')) return peer.substr(0, peer.rfind(':'));
  std::string inside = peer.substr(1, peer.find_first_of("%]") - 1);
  in6_addr address{};
  if (::inet_pton(AF_INET6, inside.c_str(), &address) != 1) return inside;
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    ::inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof text);
  } else {
    std::fill_n(&address.s6_addr[8], 8, uint8_t{0});
    ::inet_ntop(AF_INET6, &address, text, sizeof text);
  }
  return text;
}

bool Door::make_room() { return count_ < most_ || evict(); }

bool Door::evict() { return evict_one(may_leave); }

bool Door::make_room_for_relay() {
  ptrdiff_t relays = 0;
  for (const auto& [address, connections] : waiting_)
    relays += std::ranges::count_if(connections,
                                    [](const auto& each) { return has_relay(*each.second); });
  return relays < kMostRelays || evict_one(may_leave_with_relay);
}

bool Door::evict_one(const std::function<bool(const Handshake&)>& may_leave) {
  uint32_t most = 0;
  uint64_t since = 0;  // the first of that address
  Handshake* leaving = nullptr;
  for (const auto& [address, connections] : waiting_) {
    uint32_t count = 0;
    uint64_t first = 0;
    Handshake* one = nullptr;
    for (const auto& [number, each] : connections) {
      if (!may_leave(*each)) continue;
      if (count++ == 0) first = number;
      if (one == nullptr || (!is_silent(*one) && is_silent(*each))) one = each;
    }
    if (one == nullptr || count < most || (count == most && first > since)) continue;
    most = count;
    since = first;
    leaving = one;
  }
  if (leaving == nullptr) return false;
  leave(*leaving);
  leaving->evict();
  tell_of_eviction();
  return true;
}

void Door::tell_of_eviction() {
  ++evicted_;
  const auto now = std::chrono::steady_clock::now();
  if (told_ != std::chrono::steady_clock::time_point{} && now - told_ < kBetweenLines) return;
  log::warn("event=connections-evicted number={} why=\"{} connections are before their admission\"",
            evicted_, count_ + 1);
  told_ = now;
  evicted_ = 0;
}

void Door::enter(Handshake& handshake) {
  waiting_[address_of(handshake.peer())].emplace(entered_++, &handshake);
  ++count_;
}

void Door::leave(const Handshake& handshake) {
  const auto found = waiting_.find(address_of(handshake.peer()));
  if (found == waiting_.end()) return;
  Connections& connections = found->second;
  const auto here = std::ranges::find(connections, &handshake, &Connections::value_type::second);
  if (here == connections.end()) return;
  connections.erase(here);
  --count_;
  if (connections.empty()) waiting_.erase(found);
}

}  // namespace fargpu::server
