#include "server/job/job_keeper.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "common/base/log.h"

namespace fargpu::server {

using std::chrono::steady_clock;

JobKeeper::JobKeeper(boost::asio::io_context& loop, Placement& placement, IdSequence& ids,
                     const Jobs::Rules& rules, std::function<void(uint64_t job)> blind)
    : loop_(loop),
      placement_(placement),
      rules_(rules),
      blind_(std::move(blind)),
      jobs_(placement, ids, rules,
            [this](const Job& job, Jobs::Change change, const char* why) {
              on_change(job, change, why);
            }),
      timer_(loop) {}

void JobKeeper::on_change(const Job& job, Jobs::Change change, const char* why) const {
  if (change == Jobs::Change::kPlaced) return log_begin(job);
  if (change != Jobs::Change::kMoved && job.placed) {
    log::info("event=job-end job={} seconds={:.1f} why=\"{}\"", id_text(job.id),
              std::chrono::duration<double>(steady_clock::now() - job.since).count(), why);
  }
  if (change != Jobs::Change::kReturned && blind_) blind_(job.id);
}

JobRequest JobKeeper::request_of(const HelloRequest& hello, const std::string& peer,
                                 const TenantId& tenant) const {
  return {hello.placement, hello.client_name, peer, tenant};
}

Result<bootstrap::JobTicket> JobKeeper::open(const HelloRequest& hello, const std::string& peer,
                                             const TenantId& tenant) {
  bootstrap::JobTicket ticket;
  FARGPU_ASSIGN_OR_RETURN(ticket.key, bootstrap::make_session_key());
  FARGPU_ASSIGN_OR_RETURN(
      ticket.id, jobs_.open(ticket.key, request_of(hello, peer, tenant), steady_clock::now()));
  return ticket;
}

void JobKeeper::attach(const bootstrap::JobTicket& ticket, Fd socket, uint32_t sequence) {
  std::shared_ptr<JobConnection> connection;
  try {
    connection = std::make_shared<JobConnection>(loop_, std::move(socket), [this, id = ticket.id] {
      connections_.erase(id);
      log::info("event=job-released job={}", id_text(id));
      jobs_.release(id);
    });
  } catch (...) {
    jobs_.release(ticket.id);
    throw;
  }
  connections_[ticket.id] = connection;
  const Grant& grant = jobs_.find(ticket.id)->grant;
  connection->start(
      encode_job_opened(sequence, ticket, daemon_id(), uuids_of(placement_.units(), grant.units)));
}

Result<Jobs::Seat> JobKeeper::enter(const HelloRequest& hello, const std::string& peer,
                                    const TenantId& tenant) {
  const auto now = steady_clock::now();
  FARGPU_ASSIGN_OR_RETURN(const Jobs::Seat seat,
                          jobs_.enter(hello.job, request_of(hello, peer, tenant), now));
  Job& job = *jobs_.find(seat.job);
  if (const Status made = make_memory(job); !made.ok()) {
    leave(seat);
    return made;
  }
  job.memory->take(seat.slot, hello.process);
  arm_timer();
  return seat;
}

Status JobKeeper::make_memory(Job& job) {
  if (job.memory) return Status();
  FARGPU_ASSIGN_OR_RETURN(job.memory,
                          JobMemory::create({static_cast<uint32_t>(job.grant.units.size()),
                                             rules_.max_sessions, job.grant.memory_bytes}));
  return Status();
}

Result<uint64_t> JobKeeper::look_at(const HelloRequest& hello, const std::string& peer,
                                    const TenantId& tenant) {
  FARGPU_ASSIGN_OR_RETURN(
      const uint64_t job,
      jobs_.look_at(hello.job, request_of(hello, peer, tenant), steady_clock::now()));
  if (const Status made = make_memory(*jobs_.find(job)); !made.ok()) {
    look_away(job);
    return made;
  }
  arm_timer();
  return job;
}

void JobKeeper::look_away(uint64_t job) {
  jobs_.look_away(job, steady_clock::now());
  arm_timer();
}

void JobKeeper::leave(const Jobs::Seat& seat) {
  jobs_.leave(seat, steady_clock::now());
  arm_timer();
}

void JobKeeper::log_begin(const Job& job) const {
  log::info("event=job-begin job={} peer={} client=\"{}\" gpus={} memory={}", id_text(job.id),
            job.peer, job.client, fmt::join(uuids_of(placement_.units(), job.grant.units), ","),
            job.grant.memory_bytes);
}

void JobKeeper::arm_timer() {
  const auto next = jobs_.next_end();
  if (!next) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*next);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    jobs_.expire(steady_clock::now());
    arm_timer();
  });
}

void JobKeeper::close() {
  for (const auto& [job, connection] : connections_) connection->close();
  timer_.cancel();
}

}  // namespace fargpu::server
