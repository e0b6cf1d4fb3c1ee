// The estimate of slower links (link_estimate.h) for all sessions of the process, by its own clock.
// Fed by Channel while calls are counted (thread_calls.h); else nothing here is called. Any thread.
#pragma once

#include "common/rpc/link_estimate.h"
#include "common/rpc/thread_calls.h"

namespace fargpu::rpc::link_times {

// Of the calling thread. The bytes are data beside its calls and answers: copies, images.
struct ThreadBytes {
  uint64_t round_trips, sent, received;
};
inline constinit thread_local ThreadBytes thread_bytes{};

using rpc::counted;

// The channel's send lock is held: the mark in link.last is this frame's.
void sent(LinkUse& link, uint64_t bytes, uint64_t data);
// `too_early`: the answer is that something is not ready yet.
void answered(LinkUse& link, const LinkMark& mark, uint64_t bytes, uint64_t data, bool too_early);
void noticed(LinkUse& link, uint64_t bytes);
// Around a wait for a notice.
uint64_t begin_wait();
void saw_notice(LinkUse& link, uint64_t begun);

LinkTimes so_far();
// In a forked child, whose other threads do not exist.
void forget_after_fork();

}  // namespace fargpu::rpc::link_times
