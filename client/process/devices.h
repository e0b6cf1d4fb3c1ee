// The devices of all servers of a program as one list: identities that are unique in the process,
// and which of them the program sees. Pure functions of the servers' answers, so every process of a
// job gets the same results.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/object/device.h"
#include "common/wire/opcode_set.h"

namespace fargpu::client {

// All devices of each server in turn.
using DevicesOfServers = std::span<std::vector<Device>* const>;

// An older server may lack messages for features of its devices: such attributes become 0. `known`:
// the server's messages.
void hide_what_server_lacks(std::span<Device> devices, const wire::OpcodeSet& known);

// Gives devices of several servers identities of their own (client/settings/identities.h).
void make_identities_unique(DevicesOfServers servers);

// Keeps in each list the devices that CUDA_VISIBLE_DEVICES selects (settings.h) among the devices
// of all servers, and numbers them: `ordinal` is the place in the variable's order.
void choose_visible(DevicesOfServers servers, const std::optional<std::string>& variable);

}  // namespace fargpu::client
