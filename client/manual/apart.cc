#include "client/manual/apart.h"

#include "client/process/process.h"
#include "client/process/session.h"
#include "common/base/log.h"

namespace fargpu::client {

bool is_own(Session& session, CUdeviceptr address) {
  const auto region = session.device_memory.find(address);
  return region && region->base == address && region->session == &session;
}

CUresult refuse_address(Session& session, const char* name, CUdeviceptr address) {
  auto other = session.device_memory.find(address);
  if (!other) other = session.reservations.find(address);
  log::error(
      "{}: server {} gives the device address 0x{:x}, which server {} has given out, too; refused "
      "(simulated GPUs: give the daemons different --sim-slot)",
      name, session.settings.server, address,
      other ? other->session->settings.server : std::string("another"));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace fargpu::client
