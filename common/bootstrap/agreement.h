// What client and server agree on: each end sends the list of opcodes that it knows, and an end
// sends only messages that both know. An opcode stands for one message for ever
// (schema/api/registry.yml), so nothing else needs to be alike.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/base/status.h"
#include "common/wire/data.h"
#include "common/wire/opcode_set.h"

namespace fargpu::bootstrap {

// Of this build: calls that have a message, and session control.
const wire::OpcodeSet& known_opcodes();
// Of a management session: calls of NVML that have a message, and session control.
const wire::OpcodeSet& known_in_management();

// The opcodes of the server, from the body of its Welcome or JobOpened. kVersion: it is of a
// release that does not say so. kProtocol: no such message.
Result<wire::OpcodeSet> opcodes_of_welcome(std::span<const std::byte> body);
Result<wire::OpcodeSet> opcodes_of_job(std::span<const std::byte> body);

// The same for any message with a field `knows`.
template <typename Builder>
void set_knows(Builder message, const wire::OpcodeSet& known = known_opcodes()) {
  message.setKnows(wire::as_data(known.bytes()));
}
template <typename Reader>
Result<wire::OpcodeSet> read_knows(Reader message) {
  return wire::OpcodeSet::from_bytes(wire::as_bytes(message.getKnows()));
}

// kVersion, with what to do: `peer` ("the server", "the client") is of release `version` (may be
// empty), which cannot agree with this one.
Status too_old(const char* peer, const std::string& version);

}  // namespace fargpu::bootstrap
