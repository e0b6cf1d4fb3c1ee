#include "server/daemon/door.h"

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
  // [2001:db8:1:2:...]:port; a short form is left whole, which only makes more addresses of it.
  size_t end = 0;
  for (int part = 0; part < 4 && end != peer.npos; ++part) end = peer.find(':', end + 1);
  return peer.substr(0, std::min(end, peer.find(']')));
}

bool Door::make_room() { return count_ < most_ || evict(); }

bool Door::evict() { return evict_one(is_silent) || evict_one(may_leave); }

bool Door::make_room_for_relay() {
  ptrdiff_t relays = 0;
  for (const auto& [address, connections] : waiting_)
    relays +=
        std::ranges::count_if(connections, [](const Handshake* each) { return has_relay(*each); });
  return relays < kMostRelays || evict_one(may_leave_with_relay);
}

bool Door::evict_one(const std::function<bool(const Handshake&)>& may_leave) {
  const Connections* most = nullptr;
  Handshake* oldest = nullptr;
  for (const auto& [address, connections] : waiting_) {
    if (most != nullptr && connections.size() <= most->size()) continue;
    const auto found =
        std::ranges::find_if(connections, [&](const Handshake* each) { return may_leave(*each); });
    if (found == connections.end()) continue;
    most = &connections;
    oldest = *found;
  }
  if (oldest == nullptr) return false;
  leave(*oldest);
  oldest->evict();
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
  waiting_[address_of(handshake.peer())].push_back(&handshake);
  ++count_;
}

void Door::leave(const Handshake& handshake) {
  const auto found = waiting_.find(address_of(handshake.peer()));
  if (found == waiting_.end()) return;
  Connections& connections = found->second;
  const auto here = std::ranges::find(connections, &handshake);
  if (here == connections.end()) return;
  connections.erase(here);
  --count_;
  if (connections.empty()) waiting_.erase(found);
}

}  // namespace fargpu::server
