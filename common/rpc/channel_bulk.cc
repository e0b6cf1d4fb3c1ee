// The bulk connection of a Channel: sending, what waits for deliveries that come there, and what
// its end means.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/channel_impl.h"
#include "common/rpc/link_times.h"
#include "common/rpc/thread_calls.h"
#include "common/wire/control.h"

namespace fargpu::rpc {
namespace {

// `landed`: bytes that this client has sent are there. Which of them the worker wanted, it has said
// by `fetch`.
bool is_silent(uint16_t notice) { return notice == wire::kAlive || notice == wire::kLanded; }

}  // namespace

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

void Channel::Impl::read_bulk() {
  bulk->read(*landings, [this](const Status& why) {
    landings->stop();
    bulk_ended(why);
  });
}

Status Channel::Impl::on_notice(const wire::FrameHeader& header, Bytes body, Bytes bulk_bytes) {
  if (landings == nullptr || is_silent(header.opcode))
    return sink.on_notice(header, body, bulk_bytes);
  if (header.opcode == wire::kDeliveryBeside) return landings->announce(header.sequence);
  return landings->take(header, body, bulk_bytes);
}

// An error may be that of work behind the copy. Not ready: something is not done, which says
// nothing about what is.
uint64_t Channel::Impl::behind(const wire::FrameHeader& reply) const {
  if (landings == nullptr || reply.opcode == wire::kInspect || reply.result == kNotReady) return 0;
  if (reply.result == 0 && options.tells_nothing != nullptr && options.tells_nothing(reply.opcode))
    return 0;
  return landings->announced();
}

std::span<std::byte> Channel::Impl::bulk_aside(const wire::FrameHeader& reply, Waiter& waiter) {
  waiter.bulk_aside = std::make_unique_for_overwrite<std::byte[]>(reply.bulk_bytes);
  return {waiter.bulk_aside.get(), reply.bulk_bytes};
}

Status Channel::Impl::land(Waiter& waiter, Deadline deadline) {
  if (!landings->has_landed(waiter.behind)) {
    const WaitingSender waits(*this);
    if (!landings->wait(waiter.behind, deadline)) {
      return lost ? lost_status()
                  : Status(StatusCode::kTimeout, "the server did not answer in time");
    }
  }
  if (waiter.bulk_aside != nullptr)
    std::memcpy(waiter.bulk_out.data(), waiter.bulk_aside.get(), waiter.reply.bulk_bytes);
  return {};
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
    survives(Status(why.code(),
                    fmt::format("the session's bulk connection has ended: {}", why.message())));
  }
}

}  // namespace fargpu::rpc
