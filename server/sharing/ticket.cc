#include "server/sharing/ticket.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

namespace fargpu::server {
namespace {

constexpr uint32_t kMagic = 0x74736766;  // "fgst"
constexpr uint16_t kVersion = 1;

bool is_in_file(SharedKind kind) {
  return kind == SharedKind::kMemory || kind == SharedKind::kPool;
}

}  // namespace

Result<Ticket> make_ticket(SharedKind kind, const ShareIdentity& self) {
  Ticket ticket{kMagic, kVersion, kind, self.daemon, self.job, self.session, {}, {}};
  if (::getrandom(ticket.secret.data(), sizeof ticket.secret, 0) != sizeof ticket.secret)
    return system_error("getrandom", errno);
  return ticket;
}

CUresult read_ticket(std::span<const std::byte> bytes, SharedKind kind, const ShareIdentity& self,
                     Ticket* ticket) {
  if (bytes.size() != sizeof *ticket) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(ticket, bytes.data(), sizeof *ticket);
  if (ticket->magic != kMagic || ticket->version != kVersion) return CUDA_ERROR_INVALID_VALUE;
  if (ticket->kind != kind) {
    return is_in_file(ticket->kind) && is_in_file(kind) ? CUDA_ERROR_NOT_SUPPORTED
                                                        : CUDA_ERROR_INVALID_VALUE;
  }
  const bool ours = ticket->daemon == self.daemon && ticket->job == self.job;
  return ours ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

}  // namespace fargpu::server
