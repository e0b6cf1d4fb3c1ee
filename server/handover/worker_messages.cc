#include "server/handover/worker_messages.h"

#include <fmt/core.h>
#include <kj/exception.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/base/printable.h"
#include "common/wire/data.h"
#include "common/wire/slot_message.h"
#include "generated/schema/worker.capnp.h"
#include "server/handover/hello.h"

namespace fargpu::server {
namespace {

namespace schema = fargpu::schema::worker;

constexpr size_t kMostText = 4096;
constexpr size_t kMostUnits = 128;
constexpr size_t kMostReason = 2048;

wire::FrameHeader header_of(WorkerMessage kind, uint16_t flags = 0, uint32_t sequence = 0) {
  wire::FrameHeader header;
  header.opcode = static_cast<uint16_t>(kind);
  header.flags = flags;
  header.sequence = sequence;
  return header;
}

wire::FrameHeader reply_to(const wire::FrameHeader& command) {
  wire::FrameHeader header;
  header.opcode = command.opcode;
  header.flags = wire::kReply;
  header.sequence = command.sequence;
  return header;
}

MessageBytes without_body(const wire::FrameHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return {bytes.begin(), bytes.end()};
}

// A message with a body that `fill` makes. It fits: what we put in is cut before.
template <typename Root, typename Fill>
MessageBytes encode(wire::FrameHeader header, const Fill& fill) {
  std::vector<uint64_t> words(kMostMessageBytes / sizeof(uint64_t));
  const std::span slot = std::as_writable_bytes(std::span(words));
  wire::SlotMessageBuilder builder(slot.subspan(sizeof header));
  fill(builder.initRoot<Root>());
  header.body_bytes = static_cast<uint32_t>(builder.used_bytes());
  std::memcpy(slot.data(), &header, sizeof header);
  return {slot.begin(), slot.begin() + static_cast<ptrdiff_t>(sizeof header + header.body_bytes)};
}

// What `read` makes of a body; Cap'n Proto throws where one is malformed.
template <typename Root, typename Value, typename Read>
Result<Value> parse(std::span<const std::byte> body, const char* what, const Read& read) {
  try {
    wire::SegmentReader reader(body);
    return read(reader.getRoot<Root>());
  } catch (const kj::Exception& error) {
    return Status(StatusCode::kProtocol,
                  fmt::format("{}: {}", what, error.getDescription().cStr()));
  }
}

Status check_version(uint16_t version, const char* whose) {
  if (version >= kOldestWorkerProtocol) return Status();
  return {StatusCode::kVersion,
          fmt::format("the {} speaks version {} of the protocol between fargpud and fargpu-worker, "
                      "at least {} is needed; install both of one release",
                      whose, version, kOldestWorkerProtocol)};
}

void fill(schema::FrameLimits::Builder to, const wire::FrameLimits& limits) {
  to.setMaxBodyBytes(limits.max_body_bytes);
  to.setMaxBulkBytes(limits.max_bulk_bytes);
}

wire::FrameLimits read(schema::FrameLimits::Reader from) {
  return {from.getMaxBodyBytes(), from.getMaxBulkBytes()};
}

void fill(schema::Priorities::Builder to, const PriorityRange& range) {
  to.setLeast(range.least);
  to.setGreatest(range.greatest);
}

PriorityRange read(schema::Priorities::Reader from) {
  return {from.getLeast(), from.getGreatest()};
}

void fill(capnp::List<capnp::Text>::Builder to, const std::vector<bootstrap::Upgrade>& upgrades) {
  for (unsigned i = 0; i < upgrades.size(); ++i) to.set(i, bootstrap::to_string(upgrades[i]));
}

// A name that this release does not know is one that it cannot use.
std::vector<bootstrap::Upgrade> read(capnp::List<capnp::Text>::Reader from) {
  std::vector<bootstrap::Upgrade> upgrades;
  for (const auto name : from) {
    if (const auto known = bootstrap::parse_upgrade(name.cStr())) upgrades.push_back(*known);
  }
  return upgrades;
}

Result<Inventory> read_inventory(schema::Inventory::Reader root) {
  if (root.getError().size() > 0)
    return Status(StatusCode::kDriver, printable(root.getError().cStr(), kMostReason));
  Inventory inventory{root.getDriver().cStr(), root.getDriverVersion(), {}};
  if (inventory.driver_path.empty() || inventory.driver_path.size() > kMostText)
    return Status(StatusCode::kProtocol, "the probe named no driver");
  if (root.getUnits().size() > kMostUnits)
    return Status(StatusCode::kProtocol, "the probe named too many GPUs");
  for (const auto from : root.getUnits()) {
    Unit unit{printable(from.getUuid().cStr(), 64), printable(from.getName().cStr(), 256),
              from.getTotalBytes(), read(from.getPriorities()), from.getContextBytes()};
    if (unit.uuid.empty() || unit.name.empty())
      return Status(StatusCode::kProtocol, "the probe found a GPU without a name");
    inventory.units.push_back(std::move(unit));
  }
  if (inventory.units.empty()) {
    return Status(StatusCode::kNotFound,
                  fmt::format("the driver {} has no GPU; check CUDA_VISIBLE_DEVICES and nvidia-smi",
                              inventory.driver_path));
  }
  return inventory;
}

}  // namespace

MessageBytes encode_start(const WorkerOptions& options) {
  return encode<schema::Start>(
      header_of(options.management ? WorkerMessage::kManage : WorkerMessage::kStart),
      [&options](schema::Start::Builder start) {
        start.setVersion(kWorkerProtocol);
        start.setRelease(FARGPU_VERSION);
        start.setSession(options.session);
        start.setJob(options.job);
        start.setJobSlot(options.job_slot);
        start.setJobSlots(options.job_slots);
        start.setDaemonPid(::getpid());
        start.setDriver(options.driver.substr(0, kMostText));
        start.setMemoryBytes(options.memory_bytes);
        start.setImageFolder(options.image_folder.substr(0, kMostText));
        start.setImageCacheBytes(options.image_cache_bytes);
        fill(start.initLimits(), options.limits);
        fill(start.initClientLimits(), options.client_limits);
        start.setHelloSequence(options.hello_sequence);
        const size_t units = std::min(options.priorities.size(), kMostUnits);
        auto priorities = start.initPriorities(static_cast<unsigned>(units));
        for (unsigned i = 0; i < units; ++i) fill(priorities[i], options.priorities[i]);
        start.setClient(options.client.substr(0, kMostText));
        fill(start.initTransports(static_cast<unsigned>(options.transports.size())),
             options.transports);
        fill(start.initAllowed(static_cast<unsigned>(options.allowed.size())), options.allowed);
        start.setSameHost(options.same_host);
        start.setEncryptedPeer(options.encrypted_peer.substr(0, kMostText));
        start.setConnections(options.connections);
        start.setClientControl(options.client_control);
        start.setDaemonId(options.daemon);
        start.setOpenFiles(options.host_limits.open_files);
        start.setOomScore(options.host_limits.oom_score);
        start.setCoreDumps(options.host_limits.core_dumps);
        const size_t names = std::min(options.units.size(), kMostUnits);
        auto uuids = start.initUnits(static_cast<unsigned>(names));
        for (unsigned i = 0; i < names; ++i) uuids.set(i, options.units[i].substr(0, 64));
        start.setClientHost(options.client_host);
        start.setClientPid(options.client_pid);
        start.setHostMemoryBytes(options.host_memory_bytes);
        start.setMaxPtxBytes(options.max_ptx_bytes);
        start.setLostClient(static_cast<uint32_t>(options.lost_client.count()));
      });
}

Result<WorkerOptions> parse_start(std::span<const std::byte> body) {
  return parse<schema::Start, WorkerOptions>(
      body, "start", [](schema::Start::Reader start) -> Result<WorkerOptions> {
        FARGPU_RETURN_IF_ERROR(check_version(start.getVersion(), "daemon"));
        WorkerOptions options;
        options.daemon_version = start.getVersion();
        options.session = start.getSession();
        options.job = start.getJob();
        options.job_slot = start.getJobSlot();
        options.job_slots = start.getJobSlots();
        options.driver = start.getDriver().cStr();
        options.memory_bytes = start.getMemoryBytes();
        options.image_folder = start.getImageFolder().cStr();
        options.image_cache_bytes = start.getImageCacheBytes();
        options.limits = read(start.getLimits());
        options.client_limits = read(start.getClientLimits());
        options.hello_sequence = start.getHelloSequence();
        for (const auto range : start.getPriorities()) options.priorities.push_back(read(range));
        options.client = start.getClient().cStr();
        options.transports = read(start.getTransports());
        options.allowed = read(start.getAllowed());
        options.same_host = start.getSameHost();
        options.encrypted_peer = start.getEncryptedPeer().cStr();
        options.connections = std::max<uint16_t>(1, start.getConnections());
        options.client_control = start.getClientControl();
        options.daemon = start.getDaemonId();
        options.host_limits = {start.getOpenFiles(), start.getOomScore(), start.getCoreDumps()};
        for (const auto uuid : start.getUnits()) options.units.emplace_back(uuid.cStr());
        options.client_host = start.getClientHost();
        options.client_pid = start.getClientPid();
        options.host_memory_bytes = start.getHostMemoryBytes();
        options.max_ptx_bytes = start.getMaxPtxBytes();
        options.lost_client = std::chrono::milliseconds(start.getLostClient());
        return options;
      });
}

MessageBytes encode_prepare(const PrepareOptions& options) {
  return encode<schema::Prepare>(header_of(WorkerMessage::kPrepare, wire::kWantReply, 1),
                                 [&options](schema::Prepare::Builder prepare) {
                                   prepare.setVersion(kWorkerProtocol);
                                   prepare.setRelease(FARGPU_VERSION);
                                   prepare.setDaemonPid(::getpid());
                                   prepare.setDriver(options.driver.substr(0, kMostText));
                                   prepare.setOpenFiles(options.host_limits.open_files);
                                   prepare.setOomScore(options.host_limits.oom_score);
                                   prepare.setCoreDumps(options.host_limits.core_dumps);
                                 });
}

Result<PrepareOptions> parse_prepare(std::span<const std::byte> body) {
  return parse<schema::Prepare, PrepareOptions>(
      body, "prepare", [](schema::Prepare::Reader prepare) -> Result<PrepareOptions> {
        FARGPU_RETURN_IF_ERROR(check_version(prepare.getVersion(), "daemon"));
        return PrepareOptions{
            prepare.getDriver().cStr(),
            {prepare.getOpenFiles(), prepare.getOomScore(), prepare.getCoreDumps()}};
      });
}

MessageBytes encode_prepared(const Status& status) {
  return encode<schema::Prepared>(header_of(WorkerMessage::kPrepare, wire::kReply, 1),
                                  [&status](schema::Prepared::Builder prepared) {
                                    if (!status.ok())
                                      prepared.setError(status.message().substr(0, kMostReason));
                                  });
}

Status parse_prepared(std::span<const std::byte> body) {
  const auto error =
      parse<schema::Prepared, std::string>(body, "prepared", [](schema::Prepared::Reader prepared) {
        return Result<std::string>(printable(prepared.getError().cStr(), kMostReason));
      });
  if (!error.ok()) return error.status();
  return error->empty() ? Status() : Status(StatusCode::kDriver, *error);
}

MessageBytes encode_settled() { return without_body(header_of(WorkerMessage::kSettled)); }

MessageBytes encode_probe(const ProbeRequest& request) {
  return encode<schema::Probe>(header_of(WorkerMessage::kProbe, wire::kWantReply, 1),
                               [&request](schema::Probe::Builder probe) {
                                 probe.setVersion(kWorkerProtocol);
                                 probe.setDriver(request.driver.substr(0, kMostText));
                                 probe.setContexts(request.measures_contexts);
                               });
}

Result<ProbeRequest> parse_probe(std::span<const std::byte> body) {
  return parse<schema::Probe, ProbeRequest>(
      body, "probe", [](schema::Probe::Reader probe) -> Result<ProbeRequest> {
        FARGPU_RETURN_IF_ERROR(check_version(probe.getVersion(), "daemon"));
        return ProbeRequest{probe.getDriver().cStr(), probe.getContexts()};
      });
}

MessageBytes encode_started() {
  return encode<schema::Started>(header_of(WorkerMessage::kStarted),
                                 [](schema::Started::Builder started) {
                                   started.setVersion(kWorkerProtocol);
                                   started.setRelease(FARGPU_VERSION);
                                 });
}

Result<uint16_t> check_started(const ReceivedMessage& message) {
  if (kind_of(message) != WorkerMessage::kStarted || message.is_reply()) {
    return Status(StatusCode::kProtocol,
                  fmt::format("the first message has kind {}", message.header.opcode));
  }
  return parse<schema::Started, uint16_t>(
      message.body(), "started", [](schema::Started::Reader started) -> Result<uint16_t> {
        FARGPU_RETURN_IF_ERROR(check_version(started.getVersion(), "worker"));
        return started.getVersion();
      });
}

MessageBytes encode_inventory(const Result<Inventory>& inventory) {
  return encode<schema::Inventory>(
      header_of(WorkerMessage::kProbe, wire::kReply, 1), [&inventory](auto root) {
        if (!inventory.ok()) {
          root.setError(inventory.status().message().substr(0, kMostReason));
          return;
        }
        root.setDriver(inventory->driver_path.substr(0, kMostText));
        root.setDriverVersion(inventory->driver_version);
        const size_t count = std::min(inventory->units.size(), kMostUnits);
        auto units = root.initUnits(static_cast<unsigned>(count));
        for (unsigned i = 0; i < count; ++i) {
          const Unit& unit = inventory->units[i];
          units[i].setUuid(unit.uuid.substr(0, 64));
          units[i].setName(unit.name.substr(0, 128));
          units[i].setTotalBytes(unit.total_bytes);
          fill(units[i].initPriorities(), unit.priorities);
          units[i].setContextBytes(unit.context_bytes);
        }
      });
}

Result<Inventory> parse_inventory(std::span<const std::byte> body) {
  return parse<schema::Inventory, Inventory>(body, "inventory", read_inventory);
}

MessageBytes encode_command(WorkerMessage command, uint32_t sequence) {
  return without_body(header_of(command, wire::kWantReply, sequence));
}

MessageBytes encode_drain(uint32_t sequence, std::chrono::milliseconds limit) {
  return encode<schema::Drain>(header_of(WorkerMessage::kDrain, wire::kWantReply, sequence),
                               [limit](schema::Drain::Builder drain) {
                                 drain.setMilliseconds(static_cast<uint32_t>(limit.count()));
                               });
}

Result<std::chrono::milliseconds> parse_drain(std::span<const std::byte> body) {
  using Limit = std::chrono::milliseconds;
  return parse<schema::Drain, Limit>(body, "drain", [](schema::Drain::Reader drain) {
    return Result<Limit>(Limit(drain.getMilliseconds()));
  });
}

MessageBytes encode_report(const wire::FrameHeader& command, const WorkerReport& report) {
  return encode<schema::Report>(reply_to(command), [&report](schema::Report::Builder root) {
    root.setCalls(report.calls);
    const size_t units = std::min(report.memory_bytes.size(), kMostUnits);
    auto memory = root.initMemoryBytes(static_cast<unsigned>(units));
    for (unsigned i = 0; i < units; ++i) memory.set(i, report.memory_bytes[i]);
    root.setContexts(report.contexts);
    root.setStreams(report.streams);
    root.setStopped(report.stopped);
    root.setIdle(report.idle);
    root.setWaits(report.waits);
    root.setHelperCalls(report.helper_calls);
    root.setHostFunctions(report.host_functions);
    root.setStuck(report.stuck);
    root.setCall(report.call);
    root.setClientGone(report.client_gone);
    root.setClientSeen(report.client_seen);
  });
}

MessageBytes encode_await_ended(uint32_t sequence) {
  return without_body(header_of(WorkerMessage::kAwaitEnded, wire::kWantReply, sequence));
}

MessageBytes encode_await_ended_answer(uint32_t sequence) {
  return without_body(header_of(WorkerMessage::kAwaitEnded, wire::kReply, sequence));
}

MessageBytes encode_peer(WorkerMessage kind, uint64_t session, uint32_t sequence) {
  const uint16_t flags = kind == WorkerMessage::kConnectPeer ? wire::kWantReply : 0;
  return encode<schema::Peer>(header_of(kind, flags, sequence),
                              [session](schema::Peer::Builder peer) { peer.setSession(session); });
}

Result<uint64_t> parse_peer(std::span<const std::byte> body) {
  return parse<schema::Peer, uint64_t>(
      body, "peer", [](schema::Peer::Reader peer) { return Result<uint64_t>(peer.getSession()); });
}

MessageBytes encode_peer_answer(uint32_t sequence, int32_t result) {
  wire::FrameHeader header = header_of(WorkerMessage::kConnectPeer, wire::kReply, sequence);
  header.result = result;
  return without_body(header);
}

MessageBytes encode_image_name(WorkerMessage kind, uint32_t sequence, const Sha256Digest& hash) {
  return encode<schema::ImageName>(header_of(kind, wire::kWantReply, sequence),
                                   [&hash](schema::ImageName::Builder name) {
                                     name.setHash(wire::as_data(hash.data(), hash.size()));
                                   });
}

Result<Sha256Digest> parse_image_hash(std::span<const std::byte> body) {
  return parse<schema::ImageName, Sha256Digest>(
      body, "image", [](schema::ImageName::Reader name) -> Result<Sha256Digest> {
        Sha256Digest hash;
        const auto given = name.getHash();
        if (given.size() != hash.size())
          return Status(StatusCode::kProtocol, fmt::format("a hash of {} bytes", given.size()));
        std::memcpy(hash.data(), given.begin(), hash.size());
        return hash;
      });
}

MessageBytes encode_begin_image(uint32_t upload, uint64_t bytes) {
  return encode<schema::ImageUpload>(
      header_of(WorkerMessage::kBeginImage, wire::kWantReply, upload),
      [bytes](schema::ImageUpload::Builder image) { image.setBytes(bytes); });
}

Result<uint64_t> parse_image_bytes(std::span<const std::byte> body) {
  return parse<schema::ImageUpload, uint64_t>(
      body, "upload",
      [](schema::ImageUpload::Reader image) { return Result<uint64_t>(image.getBytes()); });
}

MessageBytes encode_end_image(uint32_t upload) {
  return without_body(header_of(WorkerMessage::kEndImage, 0, upload));
}

MessageBytes encode_image_answer(const wire::FrameHeader& question, bool yes) {
  wire::FrameHeader header = reply_to(question);
  header.result = yes ? 0 : kNoImage;
  return without_body(header);
}

MessageBytes encode_unknown(const wire::FrameHeader& command) {
  wire::FrameHeader header = reply_to(command);
  header.result = kUnknownMessage;
  return without_body(header);
}

Result<WorkerReport> parse_report(const ReceivedMessage& reply) {
  if (reply.header.result != 0) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("the worker does not know the command {}", reply.header.opcode));
  }
  return parse<schema::Report, WorkerReport>(
      reply.body(), "report", [](schema::Report::Reader root) -> Result<WorkerReport> {
        if (root.getMemoryBytes().size() > kMostUnits)
          return Status(StatusCode::kProtocol, "report: too many GPUs");
        WorkerReport report;
        report.calls = root.getCalls();
        for (const uint64_t bytes : root.getMemoryBytes()) report.memory_bytes.push_back(bytes);
        report.contexts = root.getContexts();
        report.streams = root.getStreams();
        report.stopped = root.getStopped();
        report.idle = root.getIdle();
        report.waits = root.getWaits();
        report.helper_calls = root.getHelperCalls();
        report.host_functions = root.getHostFunctions();
        report.stuck = root.getStuck();
        report.call = root.getCall();
        report.client_gone = root.getClientGone();
        report.client_seen = root.getClientSeen();
        return report;
      });
}

MessageBytes encode_last_words(const LastWords& words) {
  return encode<schema::LastWords>(header_of(WorkerMessage::kLastWords),
                                   [&words](schema::LastWords::Builder message) {
                                     message.setReason(words.reason.substr(0, kMostReason));
                                     message.setLimit(words.limit);
                                   });
}

Result<LastWords> parse_last_words(std::span<const std::byte> body) {
  constexpr size_t kMostLimit = 64;
  return parse<schema::LastWords, LastWords>(
      body, "last words", [](schema::LastWords::Reader words) {
        return Result<LastWords>(LastWords{printable(words.getReason().cStr(), kMostReason),
                                           printable(words.getLimit().cStr(), kMostLimit)});
      });
}

}  // namespace fargpu::server
