// The part of a Chrome trace (client/call/trace.h) that is not the program's calls: the frames of
// one session on the wire and in its worker, by this process' monotonic clock. The worker records
// its work (server/core/timeline.h); its notes are fetched when half of their room may be used, and
// at the end. Any thread, but start() and finish(): once each.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "client/timeline/clock_relation.h"
#include "client/timeline/frames.h"
#include "common/rpc/channel.h"

namespace fargpu::client {
class Link;
}

namespace fargpu::client::timeline {

class SessionTimeline {
 public:
  // `records`: the room in the worker.
  SessionTimeline(Link& link, unsigned number, std::string server, uint64_t records);

  // For the channel; null: no observer.
  rpc::FrameObserver* observer() { return known_ ? &frames_ : nullptr; }
  // When the session is connected: relates the clocks, and asks for the worker's notes. Failures
  // here or later appear in the trace.
  void start();
  // After a call that waited. Does nothing while another thread fetches.
  void fetch_if_half_full();
  // Fetches the rest, unless the worker does not answer by the deadline.
  void finish(transport::Deadline deadline);

 private:
  // With mutex_ held.
  CUresult relate_clocks(Exchange* exchange);
  CUresult take(std::vector<wire::TimelineRecord>& records);
  void fetch();
  // In the trace and in the log, with the lock or without it.
  void tell(const std::string& why, const std::string& arguments = "");

  Link& link_;
  const uint64_t process_;
  const std::string server_;
  const bool known_;  // the server knows the calls
  const uint64_t records_;
  Frames frames_;
  std::mutex mutex_;  // the members below; held during requests to the worker
  bool on_ = false;
  Exchange last_;
  uint64_t dropped_ = 0;
};

}  // namespace fargpu::client::timeline
