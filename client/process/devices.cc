#include "client/process/devices.h"

#include <fmt/core.h>

#include <utility>

#include "client/settings/identities.h"
#include "client/settings/settings.h"
#include "generated/schema/opcodes.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::client {
namespace {

int domain_of(const Device& device) { return device.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID); }

void set_domain(Device& device, int domain) {
  device.set(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, domain);
  // "0000:01:00.0"
  if (const size_t colon = device.pci_bus_id.find(':'); colon != std::string::npos)
    device.pci_bus_id = fmt::format("{:04X}{}", domain, device.pci_bus_id.substr(colon));
}

}  // namespace

void hide_what_server_lacks(std::span<Device> devices, const wire::OpcodeSet& known) {
  constexpr std::pair<uint16_t, CUdevice_attribute> kNeeds[] = {
      {schema::op_cuMemExportToShareableHandle,
       CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
      {schema::op_cuIpcGetEventHandle, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED},
      {schema::op_fgPoolImport, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES}};
  for (const auto& [opcode, attribute] : kNeeds) {
    if (known.contains(opcode)) continue;
    for (Device& device : devices)
      if (device.known.test(attribute)) device.set(attribute, 0);
  }
}

void make_identities_unique(DevicesOfServers servers) {
  std::vector<std::vector<Identity>> identities;
  for (const std::vector<Device>* const devices : servers) {
    auto& own = identities.emplace_back();
    for (const Device& device : *devices) own.push_back({device.uuid, domain_of(device)});
  }
  make_unique(identities);
  for (size_t i = 0; i < servers.size(); ++i) {
    for (size_t j = 0; j < servers[i]->size(); ++j) {
      Device& device = (*servers[i])[j];
      device.uuid = identities[i][j].uuid;
      if (identities[i][j].domain != domain_of(device)) set_domain(device, identities[i][j].domain);
    }
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
  std::vector<std::string> uuids;
  for (const Device& device : all) {
    uuids.push_back(uuid_text(device.uuid));
    if (schema::is_instance(device.name)) uuids.back() = "MIG" + uuids.back().substr(3);
  }
  int ordinal = 0;
  for (const int chosen : visible_ordinals(variable, uuids)) {
    const auto index = static_cast<size_t>(chosen);
    servers[server_of[index]]->push_back(all[index]);
    servers[server_of[index]]->back().ordinal = ordinal++;
  }
}

}  // namespace fargpu::client
