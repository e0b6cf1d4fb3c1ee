#include "common/bootstrap/job_ticket.h"

#include <fmt/core.h>

#include <charconv>

namespace fargpu::bootstrap {
namespace {

constexpr size_t kIdDigits = 16;

template <typename T>
bool read_hex(std::string_view digits, T* value) {
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), *value, 16);
  return error == std::errc() && end == digits.data() + digits.size();
}

}  // namespace

Result<JobTicket> make_ticket() {
  JobTicket ticket;
  FARGPU_ASSIGN_OR_RETURN(ticket.key, make_session_key());
  return ticket;
}

std::string to_text(const JobTicket& ticket) {
  std::string text = fmt::format("{:016x}-", ticket.id);
  for (const std::byte byte : ticket.key) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

Result<JobTicket> parse_ticket(std::string_view text) {
  const Status wrong(StatusCode::kInvalidArgument,
                     "not a job's id and key as `fargpu run` sets it; unset it, or start the "
                     "program with `fargpu run`");
  JobTicket ticket;
  if (text.size() != kIdDigits + 1 + 2 * ticket.key.size() || text[kIdDigits] != '-') return wrong;
  if (!read_hex(text.substr(0, kIdDigits), &ticket.id)) return wrong;
  for (size_t i = 0; i < ticket.key.size(); ++i) {
    uint8_t byte = 0;
    if (!read_hex(text.substr(kIdDigits + 1 + 2 * i, 2), &byte)) return wrong;
    ticket.key[i] = std::byte{byte};
  }
  return ticket;
}

std::string to_text(std::span<const JobTicket> tickets) {
  std::string text;
  for (const JobTicket& ticket : tickets) text += (text.empty() ? "" : ",") + to_text(ticket);
  return text;
}

Result<std::vector<JobTicket>> parse_tickets(std::string_view text) {
  std::vector<JobTicket> tickets;
  for (;;) {
    const size_t comma = text.find(',');
    FARGPU_ASSIGN_OR_RETURN(const JobTicket ticket, parse_ticket(text.substr(0, comma)));
    tickets.push_back(ticket);
    if (comma == std::string_view::npos) return tickets;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace fargpu::bootstrap
