#include "server/daemon/status_report.h"

#include <algorithm>
#include <cstring>

#include "common/base/printable.h"
#include "common/bootstrap/agreement.h"
#include "common/wire/control.h"
#include "common/wire/frame.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "server/handover/hello.h"

namespace fargpu::server {
namespace {

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

void fill(schema::SessionInfo::Builder info, const SessionRecord& session,
          const std::vector<Unit>& units) {
  info.setId(session.id);
  info.setClient(session.client);
  info.setPeer(session.peer);
  const std::string transport = printable(session.statistics->transport_text(), 256);
  info.setTransport(transport.empty() ? "starting" : transport);
  auto gpus = info.initGpus(static_cast<unsigned>(session.units.size()));
  for (unsigned i = 0; i < session.units.size(); ++i) gpus.set(i, units[session.units[i]].uuid);
  info.setMemoryLimitBytes(session.memory_bytes);
  info.setMemoryUsedBytes(session.statistics->memory_used_bytes.load(std::memory_order_relaxed));
  info.setSeconds(seconds_since(session.since));
  info.setWorkerPid(session.worker->id());
  info.setCalls(session.statistics->calls.load(std::memory_order_relaxed));
  info.setJob(session.seat.job);
  info.setManagement(session.management);
  info.setHangs(session.hangs);
}

void fill(schema::JobInfo::Builder info, const Job& job, const std::vector<Unit>& units) {
  info.setId(job.id);
  info.setClient(job.client);
  info.setPeer(job.peer);
  const auto count = static_cast<unsigned>(job.grant.units.size());
  auto gpus = info.initGpus(count);
  auto used = info.initMemoryUsedBytes(count);
  for (unsigned i = 0; i < count; ++i) {
    gpus.set(i, units[job.grant.units[i]].uuid);
    used.set(i, job.memory ? job.memory->used(i) : 0);
  }
  info.setMemoryLimitBytes(job.grant.memory_bytes);
  info.setHeld(job.connected);
  info.setSeconds(seconds_since(job.since));
  info.setEndsInSeconds(job.grant.ends ? std::max(0.0, -seconds_since(*job.grant.ends)) : -1.0);
}

}  // namespace

std::vector<std::byte> encode_status(uint32_t sequence, const StatusReport& report,
                                     uint32_t max_body_bytes) {
  const auto& [inventory, placement, jobs, sessions, started] = report;
  const std::vector<Unit>& units = placement.units();
  // Bounds of what one entry takes, with its texts at their limits.
  constexpr size_t kFixedBytes = 8192, kGpuBytes = 512;
  const size_t session_bytes = 1024 + units.size() * 64;
  const size_t job_bytes = 1024 + units.size() * 80;
  const size_t gpus_bytes = kFixedBytes + units.size() * kGpuBytes;
  const size_t room = std::max<size_t>(max_body_bytes, gpus_bytes) - gpus_bytes;
  // A view is none: it has nothing.
  std::vector<const Job*> placed;
  for (const auto& [id, job] : jobs.all()) {
    if (job.placed) placed.push_back(&job);
  }
  const size_t shown_jobs = std::min(placed.size(), room / 2 / job_bytes);
  const size_t shown =
      std::min(sessions.all().size(), (room - shown_jobs * job_bytes) / session_bytes);

  std::vector<uint64_t> words(
      (sizeof(wire::FrameHeader) + gpus_bytes + shown_jobs * job_bytes + shown * session_bytes) /
      8);
  const std::span slot = std::as_writable_bytes(std::span(words));
  wire::SlotMessageBuilder builder(slot.subspan(sizeof(wire::FrameHeader)));
  auto status = builder.initRoot<schema::Status>();
  status.setServerVersion(FARGPU_VERSION);
  status.setDriverName(inventory.driver_path);
  status.setDriverVersion(inventory.driver_version);
  status.setUptimeSeconds(seconds_since(started));
  bootstrap::set_knows(status);
  std::vector<uint32_t> sessions_on(units.size());
  for (const auto& [id, session] : sessions.all()) {
    if (session.management) continue;
    for (const size_t unit : session.units) ++sessions_on[unit];
  }
  auto gpus = status.initGpus(static_cast<unsigned>(units.size()));
  for (unsigned i = 0; i < units.size(); ++i) {
    gpus[i].setUuid(units[i].uuid);
    gpus[i].setName(units[i].name);
    gpus[i].setTotalBytes(units[i].total_bytes);
    gpus[i].setReservedBytes(placement.load(i).reserved_bytes);
    gpus[i].setSessions(sessions_on[i]);
    gpus[i].setJobs(placement.load(i).jobs);
    gpus[i].setOutOfService(printable(placement.load(i).out_of_service, 256));
  }
  auto list = status.initSessions(static_cast<unsigned>(shown));
  unsigned next = 0;
  for (const auto& [id, session] : sessions.all()) {
    if (next == shown) break;
    fill(list[next++], session, units);
  }
  auto job_list = status.initJobs(static_cast<unsigned>(shown_jobs));
  for (unsigned i = 0; i < shown_jobs; ++i) fill(job_list[i], *placed[i], units);
  wire::FrameHeader header;
  header.opcode = wire::kStatus;
  header.flags = wire::kReply;
  header.sequence = sequence;
  header.body_bytes = static_cast<uint32_t>(builder.used_bytes());
  std::memcpy(slot.data(), &header, sizeof header);
  return {slot.begin(), slot.begin() + static_cast<ptrdiff_t>(sizeof header + header.body_bytes)};
}

}  // namespace fargpu::server
