// The first frame of a connection (hello, join, the opening of a job), parsed under limits and
// checked; and the daemon's own answers. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/bootstrap/job_ticket.h"
#include "common/bootstrap/transport_choice.h"
#include "common/wire/opcode_set.h"
#include "server/placement/job_memory.h"
#include "server/placement/unit.h"

namespace fargpu::server {

struct HelloRequest {
  uint16_t protocol_version = 0;
  std::string client_version;
  wire::OpcodeSet knows;
  std::string token;
  std::string client_name;  // printable
  PlacementRequest placement;
  uint32_t max_body_bytes = 0;
  uint64_t max_bulk_bytes = 0;
  std::vector<bootstrap::Upgrade> transports;  // wished beyond the socket, best first
  std::string host_id;
  uint16_t connections = 1;  // that the client may want
  std::optional<bootstrap::JobTicket> job;
  SlotOwner process;
  uint64_t ended_session = 0;  // that a client asks for
};

// The first frame of a further connection of a session.
struct JoinRequest {
  uint16_t protocol_version = 0;
  uint64_t session = 0;
  uint16_t index = 0;
  std::vector<std::byte> key;
};

// The values against which a hello is checked.
struct HelloRules {
  uint16_t protocol_version = 0;
  std::string token;  // empty: none needed
};

// kProtocol: not a hello, or texts and lists beyond their limits.
Result<HelloRequest> parse_hello(std::span<const std::byte> body);

// The fields that OpenJob has; the others keep their defaults. Errors as of parse_hello().
Result<HelloRequest> parse_open_job(std::span<const std::byte> body);

// kProtocol: not a join.
Result<JoinRequest> parse_join(std::span<const std::byte> body);

// kVersion or kRefused (token); the text has a remedy. Enough for a status query. Nothing else is
// checked before the token.
Status check_identity(const HelloRequest& hello, const HelloRules& rules);
// For a job as well: kVersion (the client does not say which opcodes it knows).
Status check_opener(const HelloRequest& hello, const HelloRules& rules);
// The rest, for a session: kInvalidArgument (limits too small to work with).
Status check_hello(const HelloRequest& hello, const HelloRules& rules);

// A whole frame, ready to be written: answers the hello or status query with number `sequence`.
std::vector<std::byte> encode_refusal(uint16_t opcode, uint32_t sequence, const Status& why,
                                      bool draining);

// The answer to SessionEnd, likewise. `why`: of kEnded.
enum class SessionState { kUnknown, kLives, kEnded };
std::vector<std::byte> encode_session_end(uint32_t sequence, SessionState state,
                                          const std::string& why);

// The answer to OpenJob, likewise. `daemon`: its id. `gpus`: their UUIDs.
std::vector<std::byte> encode_job_opened(uint32_t sequence, const bootstrap::JobTicket& ticket,
                                         uint64_t daemon, const std::vector<std::string>& gpus);

// SlotOwner::host of the processes of one pid namespace of a host; 0 where either is not known.
uint64_t processes_of(const std::string& host, uint64_t pid_namespace);

}  // namespace fargpu::server
