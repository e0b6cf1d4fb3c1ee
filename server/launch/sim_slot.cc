#include "server/launch/sim_slot.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <utility>

namespace fargpu::server {
namespace {

// An abstract name is bound by one socket at a time, and is free again when its process ends.
Fd claim(uint32_t slot) {
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return socket;
  const std::string name = fmt::format("fargpu-sim-slot-{}", slot);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return Fd();
  return socket;
}

}  // namespace

SimSlot claim_sim_slot() {
  std::random_device random;
  const uint32_t first = random() % SimSlot::kSlots;
  for (uint32_t i = 0; i < SimSlot::kSlots; ++i) {
    const uint32_t slot = (first + i) % SimSlot::kSlots;
    if (Fd claimed = claim(slot); claimed.valid()) return {slot, std::move(claimed)};
  }
  return {first, Fd()};
}

SimUsage make_sim_usage() {
  Fd file(::memfd_create("fargpu-sim-usage", MFD_CLOEXEC));
  if (!file.valid()) return {};
  return {fmt::format("/proc/{}/fd/{}", ::getpid(), file.get()), std::move(file)};
}

}  // namespace fargpu::server
