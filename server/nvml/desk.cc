#include "server/nvml/desk.h"

#include <algorithm>

namespace fargpu::server {

std::optional<size_t> Desk::place_of(nvmlDevice_t device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  if (found == devices_.end()) return std::nullopt;
  return static_cast<size_t>(found - devices_.begin());
}

Desk::Memory Desk::memory(nvmlDevice_t device, uint64_t total, uint64_t free_of_all) const {
  const auto place = place_of(device);
  Memory memory{limited(total), 0, 0};
  memory.used = place ? std::min(memory_.used(*place), memory.total) : 0;
  memory.free = std::min(memory.total - memory.used, free_of_all);
  return memory;
}

std::vector<Desk::Process> Desk::processes(nvmlDevice_t device) const {
  std::vector<Process> found;
  const auto place = place_of(device);
  for (uint32_t slot = 0; place && client_host_ != 0 && slot < memory_.slots(); ++slot) {
    const SlotOwner owner = memory_.owner(slot);
    const uint64_t bytes = memory_.used_by(*place, slot);
    if (owner.pid <= 0 || owner.host != client_host_ || bytes == 0) continue;
    const auto pid = static_cast<uint32_t>(owner.pid);
    // A process with several sessions is one.
    const auto known = std::find_if(found.begin(), found.end(),
                                    [pid](const Process& each) { return each.pid == pid; });
    if (known == found.end()) {
      found.push_back({pid, bytes});
    } else {
      known->bytes += bytes;
    }
  }
  return found;
}

}  // namespace fargpu::server
