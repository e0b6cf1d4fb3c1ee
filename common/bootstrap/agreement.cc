#include "common/bootstrap/agreement.h"

#include <fmt/core.h>
#include <kj/exception.h>

#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/nvml_opcodes.h"
#include "generated/schema/opcodes.h"

namespace fargpu::bootstrap {
namespace {

template <typename Message>
Result<wire::OpcodeSet> opcodes_of(std::span<const std::byte> body, const char* what) {
  try {
    wire::SegmentReader reader(body);
    const auto root = reader.getRoot<Message>();
    FARGPU_ASSIGN_OR_RETURN(const auto known, read_knows(root));
    if (known.empty()) return too_old("the server", root.getServerVersion().cStr());
    return known;
  } catch (const kj::Exception&) {
    return Status(StatusCode::kProtocol, fmt::format("the server's {} is malformed", what));
  }
}

wire::OpcodeSet with_control(std::span<const uint16_t> calls) {
  wire::OpcodeSet set;
  for (const uint16_t opcode : wire::kControlOpcodes) set.insert(opcode);
  for (const uint16_t opcode : calls) set.insert(opcode);
  return set;
}

}  // namespace

const wire::OpcodeSet& known_opcodes() {
  static const wire::OpcodeSet known = with_control(schema::message_opcodes());
  return known;
}

const wire::OpcodeSet& known_in_management() {
  static const wire::OpcodeSet known = with_control(schema::nvml_opcodes());
  return known;
}

Result<wire::OpcodeSet> opcodes_of_welcome(std::span<const std::byte> body) {
  return opcodes_of<schema::Welcome>(body, "welcome");
}

Result<wire::OpcodeSet> opcodes_of_job(std::span<const std::byte> body) {
  return opcodes_of<schema::JobOpened>(body, "answer to the opening of a job");
}

Status too_old(const char* peer, const std::string& version) {
  return {StatusCode::kVersion,
          fmt::format("{} has fargpu {}, which is too old to work with {} here; install 0.2.0 or "
                      "later on both machines",
                      peer, version.empty() ? "before 0.2.0" : version, FARGPU_VERSION)};
}

}  // namespace fargpu::bootstrap
