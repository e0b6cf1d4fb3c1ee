// Jobs: the assignment of this host's GPUs to jobs. A job is one program with all its processes; it
// owns a grant (GPUs and memory), and its sessions use it. Pure logic: no clock, no system call, no
// lock; one thread.
//
//   opened   by `fargpu run`, whose connection keeps it: it ends when that has ended and its last
//            session too
//   shared   made by the first session that showed a key of the client's own: it ends a grace time
//            after its last session, so that another process of the program may come. In that time
//            it gives way to a job that needs its GPUs
//   lone     made by a session without a key: it ends with that session
//
// Management sessions look at jobs. A job that is only looked at is a view: it shows what the job
// would get, reserves nothing and counts nowhere. It is placed when its first session enters, if
// possible where it was seen, and a shared one is a view again when its grace time is over.
//
// The placement counts a job once on each of its GPUs, however many sessions it has; enter() limits
// the sessions of the host. What a tenant has is limited, too: sessions, management sessions, and
// jobs that have neither.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/bootstrap/job_ticket.h"
#include "server/job/id_sequence.h"
#include "server/job/tenant_id.h"
#include "server/placement/job_memory.h"
#include "server/placement/placement.h"

namespace fargpu::server {

struct JobRequest {
  PlacementRequest placement;  // as the client asked
  std::string client, peer;
  TenantId tenant;
};

struct Job {
  using Time = Grant::Time;
  enum class Kind { kOpened, kShared, kLone };

  uint64_t id = 0;
  Kind kind = Kind::kLone;
  bootstrap::SessionKey key{};  // of kLone: unused
  std::string client, peer;
  TenantId tenant;                         // of who has made it, and so of all its sessions
  std::vector<std::string> asked_devices;  // by name; empty: any
  bool placed = false;                     // else a view
  Grant grant;                             // `ends`: of kShared without a session
  Time since;
  bool connected = false;           // kOpened: its connection is there
  std::vector<bool> slots;          // of its sessions: taken or free
  size_t sessions = 0;              // how many are taken
  size_t observers = 0;             // management sessions, of which a view has some
  std::optional<JobMemory> memory;  // the daemon's: made when the job's first session starts
};

class Jobs {
 public:
  using Time = Job::Time;
  struct Rules {
    uint32_t max_sessions = 256;
    std::chrono::milliseconds grace{30000};
    // Bytes of a job on each GPU: the default for one that asks for none, and the cap; 0: no limit.
    uint64_t usual_memory = 0, most_memory = 0;
    uint32_t most_of_tenant = 0;  // 0: no limit
  };
  enum class Change {
    kPlaced,    // it has its grant
    kMoved,     // and its units differ from those that its observers were shown
    kReturned,  // it has given back its GPUs, and becomes a view
    kEnded,     // it is about to be forgotten; its GPUs are free already
  };
  using OnChange = std::function<void(const Job&, Change, const char* why)>;
  // `placement` and `ids` outlive the jobs.
  Jobs(Placement& placement, IdSequence& ids, const Rules& rules, OnChange on_change = nullptr)
      : placement_(placement), ids_(ids), rules_(rules), on_change_(std::move(on_change)) {}

  // A connection opens a job, and keeps it until release(). The errors of Placement::place(); and
  // here and below kNoCapacity: the tenant has what it may have.
  Result<uint64_t> open(const bootstrap::SessionKey& key, const JobRequest& request, Time now);
  // An unknown job is nothing; likewise below.
  void release(uint64_t job);

  // A session of a job: until leave(), no other session of the job has that slot.
  struct Seat {
    uint64_t job = 0;
    uint32_t slot = 0;
  };
  // kNotFound: the ticket's job is not there, or its key is another one. kInvalidArgument: the
  // session wishes for something else than its job has. kNoCapacity: the host has its sessions.
  // Otherwise the errors of Placement::place().
  Result<Seat> enter(const std::optional<bootstrap::JobTicket>& ticket, const JobRequest& request,
                     Time now);
  void leave(const Seat& seat, Time now);

  // A management session looks at a job, until look_away(): it takes no seat, and makes a view,
  // which ends with its last observer. The errors of enter(), except lack of space. kNoCapacity:
  // the host has its management sessions, or the job has as many as are left.
  Result<uint64_t> look_at(const std::optional<bootstrap::JobTicket>& ticket,
                           const JobRequest& request, Time now);
  void look_away(uint64_t job, Time now);
  // Whether the host has as many management sessions as it takes.
  bool full_of_observers() const { return observers_ >= rules_.max_sessions; }

  // Whether enter() would find a job that is placed already.
  bool knows(const std::optional<bootstrap::JobTicket>& ticket) const;

  // Ends the jobs whose grace time is over; when the next one's will be.
  void expire(Time now);
  std::optional<Time> next_end() const;

  Job* find(uint64_t job);
  const std::map<uint64_t, Job>& all() const { return jobs_; }
  size_t sessions() const { return sessions_; }

 private:
  enum class Purpose { kUse, kLook };
  Job* find(const bootstrap::JobTicket& ticket);
  Result<Job*> find_or_make(const std::optional<bootstrap::JobTicket>& ticket,
                            const JobRequest& request, Purpose purpose, Time now);
  Status place_view(Job& job);
  Status check_service(const Job& job) const;
  void end_if_unused(Job& job, Time now);
  Result<Job*> make(Job::Kind kind, const bootstrap::SessionKey& key, const JobRequest& request,
                    Purpose purpose, Time now);
  Result<Grant> place(uint64_t job, const PlacementRequest& request);
  // One place more in `job`, or in a job that is to be made (null). Of the tenant's jobs in their
  // grace time the one that ends first gives way.
  Status check_tenant(const Job* job, const JobRequest& request);
  size_t places_of(const TenantId& tenant) const;
  void tell(const Job& job, Change change, const char* why = "");
  void end(uint64_t job, const char* why);

  Placement& placement_;
  IdSequence& ids_;
  const Rules rules_;
  const OnChange on_change_;
  std::map<uint64_t, Job> jobs_;
  size_t sessions_ = 0, observers_ = 0;
};

}  // namespace fargpu::server
