// Identities of the GPUs of several servers, made unique in a process, for all libraries alike.
// Pure functions of the servers' answers, so every process of a job gets the same results.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fargpu::client {

using Uuid = std::array<uint8_t, 16>;

struct Identity {
  Uuid uuid{};
  int domain = 0;  // PCI
};

// Gives devices whose UUID an earlier server's device has another UUID, and servers whose PCI
// domains an earlier server uses other domains: the lowest free ones. Two hosts number their PCI
// devices alike, and two simulated daemons have GPUs of the same UUIDs. `servers`: the devices of
// each server in turn, all that it gave.
void make_unique(std::vector<std::vector<Identity>>& servers);

// "GPU-01234567-89ab-cdef-0123-456789abcdef", and back; nullopt: the text is none.
std::string uuid_text(const Uuid& uuid);
std::optional<Uuid> parse_uuid(std::string_view text);

}  // namespace fargpu::client
