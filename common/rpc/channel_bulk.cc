// The bulk connection of a Channel: sending, and what its end means.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/channel_impl.h"
#include "common/rpc/link_times.h"
#include "common/rpc/thread_calls.h"

namespace fargpu::rpc {

bool Channel::has_bulk_connection() const { return impl_->bulk != nullptr; }

Status Channel::send_beside(uint16_t opcode, Bytes body, Bytes bulk) {
  if (lost()) return impl_->lost_status();
  wire::FrameHeader header;
  header.opcode = opcode;
  count_sent();
  if (link_times::counted()) [[unlikely]] {
    const std::lock_guard lock(impl_->send_mutex);
    link_times::sent(impl_->link_use, sizeof header + body.size(), bulk.size());
  }
  // Liveness is watched while it waits, on the connection of the calls: the server answers there.
  const Impl::WaitingSender waits(*impl_);
  return impl_->bulk->send(header, body, bulk);
}

// What the server has sent on the other connection before its end is read first, and so is the
// reason of that end: both connections of a process that ends, end.
void Channel::Impl::bulk_ended(const Status& why) {
  constexpr auto kLastFrames = std::chrono::seconds(1), kLongest = std::chrono::seconds(3);
  constexpr auto kLookAgain = std::chrono::milliseconds(1);
  if (why.code() == StatusCode::kLost) {
    const Deadline at_last = Clock::now() + kLongest;  // a session that goes on hears something
    Deadline until = Clock::now() + kLastFrames;
    for (uint64_t seen = 0; !lost && Clock::now() < until;) {
      const uint64_t now = transport->statistics().bytes_received;
      if (std::exchange(seen, now) != now) until = std::min(Clock::now() + kLastFrames, at_last);
      std::this_thread::sleep_for(kLookAgain);
    }
  }
  if (!lost) {
    declare_lost(Status(why.code(),
                        fmt::format("the session's bulk connection has ended: {}", why.message())));
  }
}

}  // namespace fargpu::rpc
