// WorkersAhead: workers that wait for their session: started, and their driver opened for GPUs that
// a job is likely to get, so that a session begins without that. On the daemon's event loop.
//
// For each likely grant there are so many; they hold no memory of a GPU, and sleep. A worker gets
// one session and ends with it. A session with another grant gets a fresh worker, and so does one
// for which there is none left: that is never waited for.
//
// Workers are started one after the other, and not while a session is starting. After each death
// the delay of the next worker for its grant grows. One that is not ready in time is killed. One
// whose program or driver was replaced on disk is not used any more.
#pragma once

#include <sys/stat.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/daemon/worker_link.h"
#include "server/launch/watched_process.h"
#include "server/placement/placement.h"

namespace fargpu::server {

// Which file a path leads to, and in which state.
class FileIdentity {
 public:
  explicit FileIdentity(const std::string& path);
  bool operator==(const FileIdentity& other) const;

 private:
  struct stat about_ {};
};

// A grant of each unit alone: the grant of a job with one GPU.
std::vector<Grant::Environment> likely_grants(const Placement& placement);

class WorkersAhead {
 public:
  struct Rules {
    uint32_t count = 0;        // for each likely grant; 0: none
    std::string program;       // path of fargpu-worker
    PrepareOptions prepare;    // the Prepare message of each
    Grant::Environment usual;  // environment besides the grant's
    // One whose driver is not open by then is killed.
    std::chrono::milliseconds limit = std::chrono::seconds(30);
  };
  struct Worker {
    std::shared_ptr<WatchedProcess> process;
    std::shared_ptr<WorkerLink> link;
  };

  WorkersAhead(boost::asio::io_context& loop, Launcher& launcher, Rules rules,
               std::vector<Grant::Environment> grants);
  ~WorkersAhead();

  // Starts them. Before, and after stop(), there are none.
  void start();
  // Ends the waiting workers.
  void stop();
  // Gives the session to a worker with this grant, with its descriptors (kSessionFds); the worker
  // and its end are the caller's then. None: a fresh one has to be started.
  std::optional<Worker> give(const Grant::Environment& granted, const WorkerOptions& options,
                             std::span<const int> descriptors);
  // Sessions that are starting: until they settle, or end, or have taken a second, no worker is
  // started.
  void session_starts(uint64_t session);
  void session_settled(uint64_t session);
  // Whether a worker is opening its driver now that was started before `time`.
  bool is_opening_since(std::chrono::steady_clock::time_point time);
  // Calls `done` from the loop, when the worker that is opening its driver now has opened it or is
  // dismissed; soon, if there is none.
  void when_open(std::function<void()> done);
  // `on_failure` is called when a worker for that grant could not open its driver.
  void on_failure(std::function<void(size_t grant)> on_failure) {
    on_failure_ = std::move(on_failure);
  }
  // Whether workers are started for that grant; those that wait end with it.
  void set_in_service(size_t grant, bool in_service);
  // Replaces workers whose files on disk have changed.
  void look_at_files();

  // Their number, including workers that are still opening their driver.
  size_t size() const { return waiting_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Likely {
    Grant::Environment granted;
    unsigned deaths = 0;  // since one of them was used, or lived for long
    Clock::time_point not_before{};
    bool in_service = true;
  };
  struct Waiting {
    Worker worker;
    size_t grant = 0;  // of grants_
    FileIdentity program, driver;
    Clock::time_point since;
    bool prepared = false;
  };
  using Iterator = std::list<Waiting>::iterator;

  // Starts the next one that is wanted, if it is time for that.
  void look();
  void tell_open();
  Iterator opening();
  // Of the grants with too few workers, the one that may get a worker soonest, then the one with
  // the fewest.
  std::optional<size_t> wanted_grant(Clock::time_point now) const;
  // Starts one, or has it tried later.
  void start_for(size_t grant);
  Status start_one(size_t grant);
  // Of the worker at that end of a link; without effect for one that is not there any more.
  void prepared(const WorkerLink* link, const Status& status);
  void broke(const WorkerLink* link, const Status& why);
  void ended(const WorkerLink* link, const ProcessEnd& how);
  Iterator find(const WorkerLink* link);
  // Ends workers whose files have changed.
  void drop_outdated();
  // Ends one that is of no use: counts as a death.
  void fail(Iterator waiting, const std::string& why);
  // Ends it; the iterator is no longer valid.
  void dismiss(Iterator waiting);
  // Counts a death, which puts the next start for this grant off.
  void died(size_t grant, Clock::time_point since);
  void look_at(Clock::time_point time);

  boost::asio::io_context& loop_;
  Launcher& launcher_;
  const Rules rules_;
  std::vector<Likely> grants_;
  boost::asio::steady_timer timer_;
  std::list<Waiting> waiting_;  // the oldest first
  // Dismissed, until their end.
  std::map<const WatchedProcess*, std::shared_ptr<WatchedProcess>> ending_;
  std::map<uint64_t, Clock::time_point>
      starting_;                                  // sessions, with the time until which they count
  std::vector<std::function<void()>> when_open_;  // while one is opening its driver
  std::function<void(size_t)> on_failure_;
  bool running_ = false;
};

}  // namespace fargpu::server
