// JobKeeper: the daemon's jobs, with the resources of a job that jobs.h does not know: the
// connection that keeps it, its memory page, the timer of its grace time. On the daemon's event
// loop.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "server/handover/hello.h"
#include "server/job/job_connection.h"
#include "server/job/jobs.h"

namespace fargpu::server {

class JobKeeper {
 public:
  // `placement` and `ids` outlive it. `blind`: the data that management sessions of the job show is
  // outdated: it has ended, or got other GPUs.
  JobKeeper(boost::asio::io_context& loop, Placement& placement, IdSequence& ids,
            const Jobs::Rules& rules, std::function<void(uint64_t job)> blind = nullptr);

  const Jobs& jobs() const { return jobs_; }
  const Job* find(uint64_t job) { return jobs_.find(job); }

  // A job that lasts as long as the connection that attach() gets. The errors of Jobs::open().
  Result<bootstrap::JobTicket> open(const HelloRequest& hello, const std::string& peer,
                                    const TenantId& tenant);
  // Answers with the job's ticket and its GPUs.
  void attach(const bootstrap::JobTicket& ticket, Fd socket, uint32_t sequence);
  // A session's seat, with the job's memory page made. The errors of Jobs::enter().
  Result<Jobs::Seat> enter(const HelloRequest& hello, const std::string& peer,
                           const TenantId& tenant);
  void leave(const Jobs::Seat& seat);
  // The same for a management session, which takes no seat. The errors of Jobs::look_at().
  Result<uint64_t> look_at(const HelloRequest& hello, const std::string& peer,
                           const TenantId& tenant);
  void look_away(uint64_t job);
  // The daemon ends: connections are closed, nothing is waited for.
  void close();

 private:
  // For a job that has just been found or made.
  Status make_memory(Job& job);
  JobRequest request_of(const HelloRequest& hello, const std::string& peer,
                        const TenantId& tenant) const;
  void on_change(const Job& job, Jobs::Change change, const char* why) const;
  void log_begin(const Job& job) const;
  void arm_timer();

  boost::asio::io_context& loop_;
  const Placement& placement_;
  const Jobs::Rules rules_;
  const std::function<void(uint64_t job)> blind_;
  Jobs jobs_;
  std::map<uint64_t, std::shared_ptr<JobConnection>> connections_;  // of opened jobs
  boost::asio::steady_timer timer_;
};

}  // namespace fargpu::server
