#include "client/process/devices.h"

#include <gtest/gtest.h>

#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

// A host's devices: `count` behind each other on the bus of one PCI domain.
std::vector<Device> host(uint8_t first, int count, int domain = 0) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    Device& device = devices.emplace_back();
    device.uuid[15] = static_cast<uint8_t>(first + i);
    device.worker_ordinal = i;
    device.set(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, domain);
    device.pci_bus_id = "0000:1" + std::to_string(i) + ":00.0";
  }
  return devices;
}

int domain_of(const Device& device) { return device.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID); }

TEST(Devices, WhatAnOlderServerLacksIsHidden) {
  std::vector<Device> devices = host(1, 2);
  wire::OpcodeSet known;
  const auto attributes = [&] {
    return std::pair(
        devices[0].attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED),
        devices[0].attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED));
  };
  devices[0].set(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1);
  devices[0].set(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1);
  known.insert(schema::op_cuIpcGetEventHandle);
  known.insert(schema::op_cuMemExportToShareableHandle);
  hide_what_server_lacks(devices, known);
  EXPECT_EQ(attributes(), std::pair(1, 1));
  known = {};
  known.insert(schema::op_cuMemExportToShareableHandle);
  hide_what_server_lacks(devices, known);
  EXPECT_EQ(attributes(), std::pair(0, 1));
  hide_what_server_lacks(devices, {});
  EXPECT_EQ(attributes(), std::pair(0, 0));
  EXPECT_FALSE(devices[1].known.test(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)) << "not invented";
}

TEST(Devices, OneServerKeepsWhatItSays) {
  std::vector<Device> a = host(1, 2, 5);
  std::vector<Device>* all[] = {&a};
  make_identities_unique(all);
  EXPECT_EQ(a[0].uuid, host(1, 1)[0].uuid);
  EXPECT_EQ(domain_of(a[0]), 5);
  EXPECT_EQ(a[1].pci_bus_id, "0000:11:00.0");
}

TEST(Devices, ServersThatSayTheSameGetOtherIdentities) {
  std::vector<Device> a = host(1, 2), b = host(1, 2), c = host(2, 2, 1);
  std::vector<Device>* all[] = {&a, &b, &c};
  make_identities_unique(all);
  std::vector<std::array<uint8_t, 16>> uuids;
  for (const auto* devices : all) {
    for (const Device& device : *devices) {
      EXPECT_EQ(std::count(uuids.begin(), uuids.end(), device.uuid), 0);
      uuids.push_back(device.uuid);
    }
  }
  EXPECT_EQ(domain_of(a[0]), 0);
  EXPECT_EQ(domain_of(b[0]), 1);
  EXPECT_EQ(domain_of(b[1]), 1);
  EXPECT_EQ(b[1].pci_bus_id, "0001:11:00.0");
  EXPECT_EQ(domain_of(c[0]), 2) << "b has taken 1";
}

TEST(Devices, AServersOtherDomainsAreNotTaken) {
  std::vector<Device> a = host(1, 1), b = host(2, 1), of_b = host(3, 1, 1);
  b.push_back(of_b[0]);
  std::vector<Device>* all[] = {&a, &b};
  make_identities_unique(all);
  EXPECT_EQ(domain_of(b[0]), 2);
  EXPECT_EQ(domain_of(b[1]), 1);
}

TEST(Devices, VisibleOnesAreChosenAmongAll) {
  std::vector<Device> a = host(1, 2), b = host(3, 2);
  std::vector<Device>* all[] = {&a, &b};
  choose_visible(all, "3,0,2");
  ASSERT_EQ(a.size(), 1u);
  ASSERT_EQ(b.size(), 2u);
  EXPECT_EQ(a[0].ordinal, 1);
  EXPECT_EQ(a[0].worker_ordinal, 0);
  EXPECT_EQ(b[0].ordinal, 0);
  EXPECT_EQ(b[0].worker_ordinal, 1);
  EXPECT_EQ(b[1].ordinal, 2);
  EXPECT_EQ(b[1].worker_ordinal, 0);
}

TEST(Devices, AllAreVisibleWithoutAVariable) {
  std::vector<Device> a = host(1, 2), b = host(3, 1);
  std::vector<Device>* all[] = {&a, &b};
  choose_visible(all, std::nullopt);
  EXPECT_EQ(a[1].ordinal, 1);
  EXPECT_EQ(b[0].ordinal, 2);
}

}  // namespace
}  // namespace fargpu::client
