#include "client/transfer/endpoint.h"

#include <algorithm>

#include "client/entry/call_target.h"
#include "client/memory/reserve.h"
#include "generated/client/wire/memory.h"
#include "schema/support/array_size.h"

namespace fargpu::client {

namespace {

// How much of the region lies behind the address.
uint64_t rest(const std::optional<Region>& region, uint64_t address) {
  return region ? region->base + region->bytes - address : 0;
}

Endpoint known_host_end(Session& session, const copy::Rows& rows) {
  if (session.host_memory.empty()) [[likely]]
    return {.rows = rows};
  Endpoint end{.rows = rows, .region = session.host_memory.find(rows.address)};
  if (end.region && end.region->session != &session) [[unlikely]]
    end.region = session.as_registered(*end.region);
  end.known = rest(end.region, rows.address);
  return end;
}

}  // namespace

Endpoint device_end(Session& session, const copy::Rows& rows) {
  Endpoint end{.device = true, .rows = rows, .region = session.device_memory.find(rows.address)};
  end.known = rest(end.region, rows.address);
  return end;
}

Endpoint host_end(Session& session, const copy::Rows& rows) {
  Endpoint device = device_end(session, rows);
  // Host memory may lie at addresses that could not be kept free.
  const bool is_device =
      device.region && (device.region->reserved || device.region->kind == MemoryKind::kManaged);
  return is_device ? device : known_host_end(session, rows);
}

Endpoint unified_end(Session& session, const copy::Rows& rows) {
  Endpoint device = device_end(session, rows);
  if (device.region) return device;
  // Neither is known: a variable on the application's stack or heap, or an address that only device
  // code has made.
  const Endpoint host = known_host_end(session, rows);
  const bool is_host = host.region || session.host_memory.find(rows.address) ||
                       readable(reinterpret_cast<const void*>(rows.address));
  return is_host ? host : device;
}

CUresult array_end(Session& session, CUarray array, uint64_t x, uint64_t y, uint64_t z,
                   Endpoint* end) {
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto id = reinterpret_cast<uint64_t>(array);
  const auto* const record = static_cast<Array*>(session.find(rpc::HandleKind::kArray, id));
  if (record == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *end = {.device = true, .array = record, .position = {id, x, y, z}};
  return CUDA_SUCCESS;
}

CUresult check_array(const Endpoint& end, const copy::Shape& shape) {
  const CUDA_ARRAY3D_DESCRIPTOR& whole = end.array->descriptor;
  if (!is_possible(shape, end.position)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t element = schema::array_element_bytes(whole.Format, whole.NumChannels);
  if (element == 0) return CUDA_SUCCESS;
  const copy::ArrayPosition& from = end.position;
  const bool fits = from.x % element == 0 && shape.width % element == 0 &&
                    from.x + shape.width <= whole.Width * element &&
                    from.y + shape.height <= std::max<uint64_t>(whole.Height, 1) &&
                    from.z + shape.depth <= std::max<uint64_t>(whole.Depth, 1);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool lies_on_host(const Session& session, const Endpoint& end, uint64_t bytes) {
  if (!end.device) return true;
  if (end.region || end.array != nullptr || session.host_memory.empty()) [[likely]]
    return false;
  const auto region = session.host_memory.find(end.rows.address);
  return region && bytes <= rest(region, end.rows.address);
}

namespace {

// Of an address that belongs to no device memory that is known.
CUresult check_elsewhere(const Session& session, CUdeviceptr address, uint64_t bytes) {
  if (session.host_memory.find(address))
    return session.host_memory.covers(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  // The server's driver would judge its own process's memory there.
  return readable(reinterpret_cast<const void*>(address)) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

CUresult check_range(const Session& session, const Endpoint& device, uint64_t bytes) {
  if (!device.region) [[unlikely]]
    return check_elsewhere(session, device.rows.address, bytes);
  if (device.session() != &session) return CUDA_ERROR_INVALID_VALUE;
  // Neighbours in one reservation are mapped by a call each.
  const bool inside =
      bytes <= device.known || session.device_memory.covers(device.rows.address, bytes);
  return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool is_unknown(const Session& session, CUdeviceptr address) {
  return !session.device_memory.find(address) && !session.host_memory.find(address);
}

CUresult ask_driver(Session& session, uint16_t context, CUdeviceptr address, uint64_t bytes) {
  CUdeviceptr base = 0;
  size_t size = 0;
  const CUresult result = wire::cuMemGetAddressRange_v2(session, context, &base, &size, address);
  if (result == CUDA_ERROR_NOT_FOUND) return CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  const bool inside = address >= base && address - base < size && bytes <= size - (address - base);
  return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool is_untried(const Endpoint& device) {
  if (!device.region || device.region->kind != MemoryKind::kVirtual || device.region->used)
    return false;
  const Context* const context = current_context();
  return !device.region->granted || context == nullptr || context->device != device.region->device;
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
