#include "server/worker/welcome.h"

#include <cuda.h>
#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "common/bootstrap/agreement.h"
#include "common/transport/frame_io.h"
#include "common/wire/control.h"
#include "common/wire/data.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

struct DeviceFacts {
  char name[256] = {};
  CUuuid uuid = {};
  size_t total_bytes = 0;
  std::vector<std::pair<int, int>> attributes;
  char luid[8] = {};
  unsigned luid_mask = 0;
  bool has_luid = false;
  char pci_bus_id[64] = {};
};

Result<DeviceFacts> ask(const DriverTable& driver, int ordinal) {
  DeviceFacts facts;
  CUdevice device = 0;
  CUresult result = driver.cuDeviceGet(&device, ordinal);
  if (result == CUDA_SUCCESS)
    result = driver.cuDeviceGetName(facts.name, sizeof facts.name, device);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetUuid_v2(&facts.uuid, device);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceTotalMem_v2(&facts.total_bytes, device);
  if (result != CUDA_SUCCESS) {
    return Status(StatusCode::kDriver, fmt::format("the driver does not describe GPU {}: {}",
                                                   ordinal, error_text(driver, result)));
  }
  facts.name[sizeof facts.name - 1] = '\0';
  for (int id = 1; id < CU_DEVICE_ATTRIBUTE_MAX; ++id) {
    int value = 0;
    if (driver.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(id), device) ==
        CUDA_SUCCESS) {
      facts.attributes.emplace_back(id, value);
    }
  }
  facts.has_luid = driver.cuDeviceGetLuid != nullptr &&
                   driver.cuDeviceGetLuid(facts.luid, &facts.luid_mask, device) == CUDA_SUCCESS;
  if (driver.cuDeviceGetPCIBusId != nullptr) {
    driver.cuDeviceGetPCIBusId(facts.pci_bus_id, sizeof facts.pci_bus_id - 1, device);
  }
  return facts;
}

void fill(schema::Device::Builder to, const DeviceFacts& facts, const WorkerOptions& options,
          size_t ordinal) {
  to.setName(facts.name);
  to.setUuid(wire::as_data(facts.uuid.bytes, sizeof facts.uuid.bytes));
  const uint64_t total = facts.total_bytes;
  to.setTotalBytes(options.memory_bytes == 0 ? total : std::min(total, options.memory_bytes));
  auto attributes = to.initAttributes(static_cast<unsigned>(facts.attributes.size()));
  for (unsigned i = 0; i < facts.attributes.size(); ++i) {
    attributes[i].setId(facts.attributes[i].first);
    attributes[i].setValue(facts.attributes[i].second);
  }
  if (facts.has_luid) to.setLuid(wire::as_data(facts.luid, sizeof facts.luid));
  to.setLuidNodeMask(facts.luid_mask);
  to.setPciBusId(facts.pci_bus_id);
  if (ordinal < options.priorities.size()) {
    to.setLeastPriority(options.priorities[ordinal].least);
    to.setGreatestPriority(options.priorities[ordinal].greatest);
  }
}

}  // namespace

Status send_welcome(int socket, const DriverLibrary& driver, const WorkerOptions& options,
                    const std::vector<bootstrap::UpgradeOffer>& offers,
                    const bootstrap::SessionKey& key) {
  int count = 0;
  driver.table().cuDeviceGetCount(&count);
  if (count <= 0)
    return {StatusCode::kDriver, "the driver sees none of the GPUs that the session was given"};
  std::vector<DeviceFacts> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    FARGPU_ASSIGN_OR_RETURN(DeviceFacts facts, ask(driver.table(), ordinal));
    devices.push_back(std::move(facts));
  }
  const std::vector<uint16_t> missing = missing_opcodes(driver.table());
  const size_t bound = 8192 + wire::OpcodeSet::kMaxBytes + missing.size() * 2 +
                       devices.size() * (1024 + CU_DEVICE_ATTRIBUTE_MAX * 8) + offers.size() * 2048;

  std::vector<uint64_t> words(bound / sizeof(uint64_t));
  const std::span<std::byte> slot = std::as_writable_bytes(std::span(words));
  wire::SlotMessageBuilder builder(slot);
  auto welcome = builder.initRoot<schema::Welcome>();
  welcome.setSessionId(options.session);
  welcome.setServerVersion(FARGPU_VERSION);
  welcome.setDaemonId(options.daemon);
  welcome.setDriverVersion(driver.version());
  welcome.setDriverName(driver.path());
  welcome.setMaxBodyBytes(options.limits.max_body_bytes);
  welcome.setMaxBulkBytes(options.limits.max_bulk_bytes);
  auto list = welcome.initDevices(static_cast<unsigned>(devices.size()));
  for (unsigned i = 0; i < devices.size(); ++i) fill(list[i], devices[i], options, i);
  auto unavailable = welcome.initUnavailable(static_cast<unsigned>(missing.size()));
  for (unsigned i = 0; i < missing.size(); ++i) unavailable.set(i, missing[i]);
  bootstrap::set_knows(welcome);
  auto upgrades = welcome.initUpgrades(static_cast<unsigned>(offers.size()));
  for (unsigned i = 0; i < offers.size(); ++i) {
    upgrades[i].setTransport(bootstrap::to_string(offers[i].upgrade));
    upgrades[i].setWhy(offers[i].why_not.substr(0, 1024));
  }
  welcome.setConnections(options.connections);
  if (options.connections > 1) welcome.setSessionKey(wire::as_data(key));
  wire::FrameHeader header;
  header.opcode = wire::kHello;
  header.flags = wire::kReply;
  header.sequence = options.hello_sequence;
  constexpr auto kPatience = std::chrono::seconds(10);
  return transport::write_one_frame(socket, header, slot.first(builder.used_bytes()), {},
                                    transport::Clock::now() + kPatience);
}

std::string uuid_text(const unsigned char (&b)[16]) {
  return fmt::format(
      "GPU-{:02x}{:02x}{:02x}{:02x}-{:02x}{:02x}-{:02x}{:02x}-{:02x}{:02x}-{:02x}{:02x}{:02x}{:02x}"
      "{:02x}{:02x}",
      b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
      b[15]);
}

}  // namespace fargpu::server
