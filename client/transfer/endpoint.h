// An end of a copy or a memset: what the process knows of the memory at an address. An address is
// looked up once per call, here; what was found goes along with the call. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "client/memory/address_map.h"
#include "client/object/array.h"
#include "common/copy/copy.h"
#include "common/rpc/answers_awaited.h"

namespace fargpu::client {

class Session;

struct Endpoint {
  bool device = false;  // else host memory
  copy::Rows rows{};
  // What the address belongs to. Of a device end: memory of whatever session. Of a host end: memory
  // that the application pinned or registered, as the call's session has it (Session::find_host).
  std::optional<Region> region{};
  uint64_t known = 0;  // bytes from the address on that belong to it
  // Of a part of an array instead: a device end without an address.
  const Array* array = nullptr;
  copy::ArrayPosition position{};

  Session* session() const {
    return array != nullptr ? array->session : region ? region->session : nullptr;
  }
  // Of a device end.
  copy::Location location() const {
    return array != nullptr ? copy::Location::in_array(position) : copy::Location::device(rows);
  }
};

// Of an address that the application says is of the device, or of the host.
Endpoint device_end(Session& session, const copy::Rows& rows);
// Addresses are unified: known device memory, managed memory too, is a device end in any case.
Endpoint host_end(Session& session, const copy::Rows& rows);
// Of an array of the session. CUDA_ERROR_INVALID_VALUE: NULL; CUDA_ERROR_INVALID_HANDLE: none.
CUresult array_end(Session& session, CUarray array, uint64_t x, uint64_t y, uint64_t z,
                   Endpoint* end);
// Of a unified address. What is not known and can be read here is host memory.
Endpoint unified_end(Session& session, const copy::Rows& rows);

// Whether so many bytes from the end on are host memory: also pinned or registered memory by its
// device address.
bool lies_on_host(const Session& session, const Endpoint& end, uint64_t bytes);

// CUDA_ERROR_INVALID_VALUE: so many bytes from the address on begin in known memory and run out of
// it, or that memory is one of another session, or is pageable memory of this process. Memory that
// is not known at all is the driver's to judge (AskDriver).
CUresult check_range(const Session& session, const Endpoint& device, uint64_t bytes);

// Whether a device end, or a device address, lies in memory of which this process knows nothing: a
// wrong address, or a variable of a module that nobody has looked up.
bool is_unknown(const Session& session, CUdeviceptr address);
inline bool is_unknown(const Session& session, const Endpoint& device) {
  return device.device && !device.region && device.array == nullptr &&
         is_unknown(session, device.rows.address);
}
// Around calls that send work without waiting. If its memory is unknown they wait, and the driver's
// answer is theirs: natively a wrong address fails in the call, and later calls are none the wiser.
class AskDriver {
 public:
  explicit AskDriver(bool is_asked) {
    if (is_asked) [[unlikely]]
      awaited_.emplace();
  }

 private:
  std::optional<rpc::AnswersAwaited> awaited_;
};
// For work that tells its errors later: whether the driver knows so many bytes at the address.
CUresult ask_driver(Session& session, uint16_t context, CUdeviceptr address, uint64_t bytes);

// CUDA_ERROR_INVALID_VALUE: the shape runs out of the array, or begins or ends inside an element.
// Arrays without elements of a size are the driver's to judge.
CUresult check_array(const Endpoint& end, const copy::Shape& shape);

// Mapped virtual memory may not be accessible yet. So the first operation on it is awaited, unless
// the current device is known to have access: after that was sent, flush_first_use(). `answered`:
// the worker has said already what became of it.
bool is_untried(const Endpoint& device);
CUresult flush_first_use(Session& session, const Endpoint& device, uint64_t bytes,
                         bool answered = false);

}  // namespace fargpu::client
