#include "client/transfer/endpoint.h"

#include "client/entry/call_target.h"
#include "client/memory/reserve.h"

namespace fargpu::client {

namespace {

// How much of the region lies behind the address.
uint64_t rest(const std::optional<Region>& region, uint64_t address) {
  return region ? region->base + region->bytes - address : 0;
}

}  // namespace

Endpoint device_end(Session& session, const copy::Rows& rows) {
  Endpoint end{true, rows, session.device_memory.find(rows.address), 0};
  end.known = rest(end.region, rows.address);
  return end;
}

Endpoint host_end(Session& session, const copy::Rows& rows) {
  if (session.host_memory.empty()) [[likely]]
    return {false, rows, std::nullopt, 0};
  Endpoint end{false, rows, session.host_memory.find(rows.address), 0};
  if (end.region && end.region->session != &session) [[unlikely]]
    end.region = session.as_registered(*end.region);
  end.known = rest(end.region, rows.address);
  return end;
}

Endpoint unified_end(Session& session, const copy::Rows& rows) {
  Endpoint device = device_end(session, rows);
  if (device.region) return device;
  // Neither is known: a variable on the application's stack or heap, or an address that only device
  // code has made.
  const Endpoint host = host_end(session, rows);
  const bool is_host = host.region || session.host_memory.find(rows.address) ||
                       readable(reinterpret_cast<const void*>(rows.address));
  return is_host ? host : device;
}

CUresult check_range(const Session& session, const Endpoint& device, uint64_t bytes) {
  if (!device.region) return CUDA_SUCCESS;
  if (device.session() != &session) return CUDA_ERROR_INVALID_VALUE;
  // Neighbours in one reservation are mapped by a call each.
  const bool inside =
      bytes <= device.known || session.device_memory.covers(device.rows.address, bytes);
  return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool is_untried(const Endpoint& device) {
  return device.region && device.region->kind == MemoryKind::kVirtual && !device.region->used;
}

CUresult flush_first_use(Session& session, const Endpoint& device, uint64_t bytes, bool answered) {
  if (!is_untried(device)) return CUDA_SUCCESS;
  if (!answered) {
    if (const CUresult result = flush(session); result != CUDA_SUCCESS) return result;
  }
  session.device_memory.mark_used(device.rows.address, bytes);
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
