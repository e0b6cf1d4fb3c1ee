#include "client/manual/apart.h"

#include <vector>

#include "client/process/process.h"
#include "client/process/session.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

// Blocks of one size follow each other, so each try is beyond one more of the other server's.
constexpr int kTries = 8;

}  // namespace

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

CUresult allocate_apart(Session& session, const CUdeviceptr* address,
                        const Allocation& allocation) {
  CUresult result = allocation.allocate();
  std::vector<CUdeviceptr> held;
  while (result == CUDA_SUCCESS && !allocation.is_entered()) {
    held.push_back(*address);
    if (held.size() == kTries) {
      result = refuse_address(session, allocation.name, *address);
      break;
    }
    result = allocation.allocate();
  }
  for (const CUdeviceptr each : held) allocation.give_back(each);
  return result;
}

}  // namespace fargpu::client
