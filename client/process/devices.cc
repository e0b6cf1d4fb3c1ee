#include "client/process/devices.h"

#include <fmt/core.h>

#include <array>
#include <map>
#include <set>

#include "client/process/settings.h"

namespace fargpu::client {
namespace {

using Uuid = std::array<uint8_t, 16>;

int domain_of(const Device& device) { return device.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID); }

void set_domain(Device& device, int domain) {
  device.set(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, domain);
  // "0000:01:00.0"
  if (const size_t colon = device.pci_bus_id.find(':'); colon != std::string::npos)
    device.pci_bus_id = fmt::format("{:04X}{}", domain, device.pci_bus_id.substr(colon));
}

// The byte is zero in UUIDs of simulated GPUs, and random in those of real ones.
Uuid unused(Uuid uuid, const std::set<Uuid>& used) {
  constexpr size_t kByte = 13;
  while (used.contains(uuid)) ++uuid[kByte];
  return uuid;
}

}  // namespace

void make_identities_unique(DevicesOfServers servers) {
  std::set<Uuid> uuids;
  std::set<int> domains;
  for (std::vector<Device>* const devices : servers) {
    std::set<int> own;
    for (const Device& device : *devices) own.insert(domain_of(device));
    std::map<int, int> renamed;
    for (Device& device : *devices) {
      device.uuid = unused(device.uuid, uuids);
      uuids.insert(device.uuid);
      const int domain = domain_of(device);
      if (!domains.contains(domain)) continue;
      auto [found, first] = renamed.emplace(domain, 1);
      if (first) {
        while (domains.contains(found->second) || own.contains(found->second)) ++found->second;
        own.insert(found->second);
      }
      set_domain(device, found->second);
    }
    for (const Device& device : *devices) domains.insert(domain_of(device));
  }
}

void choose_visible(DevicesOfServers servers, const std::optional<std::string>& variable) {
  std::vector<Device> all;
  std::vector<size_t> server_of;
  for (size_t i = 0; i < servers.size(); ++i) {
    for (Device& device : *servers[i]) {
      all.push_back(std::move(device));
      server_of.push_back(i);
    }
    servers[i]->clear();
  }
  std::vector<Uuid> uuids;
  for (const Device& device : all) uuids.push_back(device.uuid);
  int ordinal = 0;
  for (const int chosen : visible_ordinals(variable, uuids)) {
    const auto index = static_cast<size_t>(chosen);
    servers[server_of[index]]->push_back(all[index]);
    servers[server_of[index]]->back().ordinal = ordinal++;
  }
}

}  // namespace fargpu::client
