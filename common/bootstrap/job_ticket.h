// The ticket with which a process opens a session in its job: the job's id and key. `fargpu run`
// gives it to the program in FARGPU_JOB, and the program's children inherit it. It is not a token:
// it opens nothing but sessions of that job, and those only beside the server's token. Pure values;
// any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/host/session_key.h"

namespace fargpu::bootstrap {

inline constexpr const char* kJobVariable = "FARGPU_JOB";

struct JobTicket {
  uint64_t id = 0;  // 0: the first session that shows the key makes the job
  SessionKey key{};
  bool operator==(const JobTicket&) const = default;
};

// A ticket with a new key, for a job that its first session makes. kSystem: no randomness.
Result<JobTicket> make_ticket();

// "7f3a0c5de1b29864-" and 32 more hexadecimal digits. kInvalidArgument: the text is none; the
// message does not repeat it.
std::string to_text(const JobTicket& ticket);
Result<JobTicket> parse_ticket(std::string_view text);

// The tickets of a program with several servers, in the order of the servers, separated by commas.
std::string to_text(std::span<const JobTicket> tickets);
Result<std::vector<JobTicket>> parse_tickets(std::string_view text);

}  // namespace fargpu::bootstrap
