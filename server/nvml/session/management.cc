#include "server/nvml/session/management.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/log.h"
#include "common/bootstrap/agreement.h"
#include "common/bootstrap/upgrade.h"
#include "common/transport/frame_io.h"
#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/server/nvml/table.h"
#include "server/handover/await_ended.h"
#include "server/handover/hello.h"
#include "server/handover/session_orders.h"
#include "server/handover/worker_messages.h"
#include "server/launch/peer_watch.h"
#include "server/nvml/session/management_session.h"
#include "server/nvml/session/nvml_library.h"

namespace fargpu::server {
namespace {

// What the session gets to end by itself once its client is gone.
constexpr auto kGrace = std::chrono::seconds(3);

Status refuse(const WorkerOptions& options, const Status& status) {
  const auto frame = encode_refusal(wire::kManage, options.hello_sequence, status, false);
  [[maybe_unused]] const ssize_t written = ::write(kSocketFd, frame.data(), frame.size());
  log::error("event=session-refused why=\"{}\"", status.message());
  return status;
}

void fill(schema::Management::Device::Builder to, const NvmlTable& nvml, nvmlDevice_t device,
          const std::string& uuid) {
  to.setUuid(uuid.substr(0, 64));
  char serial[NVML_DEVICE_SERIAL_BUFFER_SIZE] = {};
  if (nvml.nvmlDeviceGetSerial != nullptr &&
      nvml.nvmlDeviceGetSerial(device, serial, sizeof serial - 1) == NVML_SUCCESS) {
    to.setSerial(serial);
  }
  nvmlPciInfo_t pci = {};
  if (nvml.nvmlDeviceGetPciInfo_v3 == nullptr ||
      nvml.nvmlDeviceGetPciInfo_v3(device, &pci) != NVML_SUCCESS) {
    return;
  }
  to.setDomain(pci.domain);
  to.setBus(pci.bus);
  to.setDevice(pci.device);
}

Status send_welcome(const WorkerOptions& options, const NvmlTable& nvml,
                    const std::vector<nvmlDevice_t>& devices) {
  std::vector<uint64_t> words(1024 + wire::OpcodeSet::kMaxBytes / 8 + devices.size() * 64);
  const auto slot = std::as_writable_bytes(std::span(words));
  wire::SlotMessageBuilder builder(slot);
  auto welcome = builder.initRoot<schema::Welcome>();
  welcome.setSessionId(options.session);
  welcome.setServerVersion(FARGPU_VERSION);
  welcome.setDaemonId(options.daemon);
  welcome.setDriverName(options.driver.substr(0, 1024));
  welcome.setMaxBodyBytes(options.limits.max_body_bytes);
  welcome.setMaxBulkBytes(options.limits.max_bulk_bytes);
  bootstrap::set_knows(welcome, bootstrap::known_in_management());
  auto list = welcome.initManagement().initDevices(static_cast<unsigned>(devices.size()));
  for (unsigned i = 0; i < devices.size(); ++i) fill(list[i], nvml, devices[i], options.units[i]);
  wire::FrameHeader header;
  header.opcode = wire::kManage;
  header.flags = wire::kReply;
  header.sequence = options.hello_sequence;
  constexpr auto kPatience = std::chrono::seconds(10);
  return transport::write_one_frame(kSocketFd, header, slot.first(builder.used_bytes()), {},
                                    transport::Clock::now() + kPatience);
}

Result<std::unique_ptr<transport::Transport>> open_transport(const WorkerOptions& options) {
  constexpr auto kConversation = std::chrono::seconds(30);
  transport::StreamOptions stream;
  stream.receive_limits = options.limits;
  stream.max_send_body_bytes = options.client_limits.max_body_bytes;
  if (!options.encrypted_peer.empty()) stream.behind = "tls " + options.encrypted_peer;
  FARGPU_ASSIGN_OR_RETURN(bootstrap::Upgraded made,
                          bootstrap::upgrade_as_worker(Fd(kSocketFd), {}, stream,
                                                       transport::Clock::now() + kConversation));
  return std::move(made.transport);
}

}  // namespace

Status run_management(const WorkerOptions& options, const std::function<void()>& stuck) {
  // The daemon ends a management session so: it holds nothing.
  ::signal(SIGTERM, [](int) { ::_exit(0); });
  auto page = StatisticsPage::open(Fd(kStatisticsFd));
  if (!page.ok()) return refuse(options, page.status());
  const auto memory = JobMemory::open(
      Fd(kJobFd),
      {static_cast<uint32_t>(options.units.size()), options.job_slots, options.memory_bytes}, 0);
  if (!memory.ok()) return refuse(options, memory.status());
  const auto watch = PeerWatch::start(kSocketFd, stuck, kGrace);
  if (!watch.ok()) log::warn("event=no-watch why=\"{}\"", watch.status().message());
  const auto library = NvmlLibrary::open(options.driver);
  if (!library.ok()) return refuse(options, library.status());
  const auto devices = library->devices(options.units);
  if (!devices.ok()) return refuse(options, devices.status());
  FARGPU_RETURN_IF_ERROR(send_welcome(options, library->table(), *devices));
  FARGPU_ASSIGN_OR_RETURN(const auto transport, open_transport(options));
  (*page)->set_transport("management, " + transport->describe());
  Desk desk(library->table(), *devices, *memory, options.memory_bytes, options.client_host);
  // A daemon that does not say has no neighbours for us.
  const auto orders = OrdersPage::open(Fd(kOrdersFd), SharedPage::Access::kRead);
  if (orders.ok() && options.daemon_version >= kEndedProtocol) {
    desk.before_look([&orders, sequence = uint32_t{0}]() mutable {
      constexpr auto kLimit = std::chrono::seconds(15);
      if ((*orders)->neighbours.load(std::memory_order_relaxed) != 0)
        await_ended(kControlFd, ++sequence, transport::Clock::now() + kLimit);
    });
  }
  ManagementSession session(desk, *transport, **page);
  Status status = session.run();
  transport->close();
  return status;
}

}  // namespace fargpu::server
