// The first exchange of every connection, the client's side: a hello, and the server's answer or
// refusal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/bootstrap/job_ticket.h"
#include "common/bootstrap/transport_choice.h"
#include "common/host/session_key.h"
#include "common/transport/frame_io.h"

namespace fargpu::bootstrap {

// Hello (or OpenJob) of schema/control.capnp, without the fields that are the same in every hello.
struct Greeting {
  uint16_t opcode = 0;    // kHello, kManage, kStatus, kOpenJob or kSessionEnd
  std::string program{};  // for ps and logs
  int pid = 0;            // the program's, for the same; 0: this process
  std::string token{};
  std::string why_no_token{};  // said instead of the server's words when it asks for one
  int32_t cuda_version = 0;
  uint32_t gpus = 0;
  uint64_t memory_bytes = 0;
  std::vector<std::string> devices{};
  std::vector<Upgrade> upgrades{};
  uint16_t connections = 1;    // how many the session may have
  wire::FrameLimits limits{};  // what we accept
  std::optional<JobTicket> job{};
  uint64_t ended_session = 0;  // of kSessionEnd
};

// Sends it on a connected socket and waits for the answer, a successful reply. A refusal becomes a
// Status: kVersion, kRefused (token, or a job that is not there), kNoCapacity, kDriver,
// kInvalidArgument, with the server's words. kInvalidArgument also for a greeting that is too long;
// kProtocol: no answer of a fargpud.
Result<transport::OwnedFrame> greet(int socket, const Greeting& greeting,
                                    transport::Deadline send_deadline,
                                    transport::Deadline answer_deadline);

// The same for a further connection of a session.
struct JoinGreeting {
  uint64_t session = 0;
  SessionKey key{};
  uint16_t index = 0;
};
// Afterwards the socket is the session's. The errors of greet().
Status greet_again(int socket, const JoinGreeting& greeting, transport::Deadline deadline);

}  // namespace fargpu::bootstrap
