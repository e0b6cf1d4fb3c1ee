// The devices of all servers of a program as one list: identities that are unique in the process,
// and which of them the program sees. Pure functions of what the servers said, so every process of
// a job gets the same answers.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/object/device.h"
#include "common/wire/opcode_set.h"

namespace fargpu::client {

// The devices of each server in turn, all that it gave.
using DevicesOfServers = std::span<std::vector<Device>* const>;

// An older server cannot do what its devices can: such attributes become 0. `known`: what the
// server has a message for.
void hide_what_server_lacks(std::span<Device> devices, const wire::OpcodeSet& known);

// Gives devices of several servers identities of their own (client/settings/identities.h).
void make_identities_unique(DevicesOfServers servers);

// Leaves in each list what CUDA_VISIBLE_DEVICES selects (settings.h) among the devices of all, and
// numbers it: `ordinal` is the place in the variable's order.
void choose_visible(DevicesOfServers servers, const std::optional<std::string>& variable);

}  // namespace fargpu::client
