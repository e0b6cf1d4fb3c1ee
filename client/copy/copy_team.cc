#include "client/copy/copy_team.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "common/base/env.h"
#include "common/host/thread.h"

namespace fargpu::client {
namespace {

using Clock = std::chrono::steady_clock;

// A helper looks for the next piece of a large copy for this long before it sleeps; pieces follow
// each other within tens of microseconds.
constexpr auto kLook = std::chrono::microseconds(100);

}  // namespace

CopyTeam& CopyTeam::get() {
  static auto& team = *new CopyTeam(usual_threads());
  return team;
}

unsigned CopyTeam::usual_threads() {
  // The settings were checked before.
  const auto wish = env_integer("FARGPU_COPY_THREADS", 0);
  if (wish.ok() && *wish != 0) return static_cast<unsigned>(std::min<uint64_t>(*wish, 64));
  return std::clamp(std::thread::hardware_concurrency() / 4, 1u, 4u);
}

CopyTeam::~CopyTeam() {
  stop_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
  while (running_.load() != 0) std::this_thread::yield();
}

void CopyTeam::start() {
  started_ = true;
  for (unsigned i = 0; i < helpers_; ++i) {
    running_.fetch_add(1);
    Thread([this] { help(); }).detach();
  }
}

void CopyTeam::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;  // memcpy wants true addresses even then
  const size_t chunks = (bytes + kChunk - 1) / kChunk;
  std::unique_lock lock(one_at_a_time_, std::defer_lock);
  if (helpers_ == 0 || bytes < kAlone || chunks > UINT32_MAX || !lock.try_lock()) {
    std::memcpy(to, from, bytes);
    return;
  }
  if (!started_) start();
  const uint32_t round = round_.load(std::memory_order_relaxed) + 1;
  to_ = static_cast<std::byte*>(to);
  from_ = static_cast<const std::byte*>(from);
  bytes_ = bytes;
  done_.store(0, std::memory_order_relaxed);
  chunks_.store(static_cast<uint32_t>(chunks), std::memory_order_relaxed);
  ticket_.store(uint64_t{round} << 32, std::memory_order_release);
  round_.store(round, std::memory_order_release);
  round_.notify_all();
  work(round);
  // A helper that has taken the last chunk is in the middle of a memcpy: this is short unless it
  // has lost its core.
  for (unsigned looks = 0; done_.load(std::memory_order_acquire) != chunks; ++looks) {
    if (looks < 20000) {
      __builtin_ia32_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void CopyTeam::work(uint32_t round) {
  for (uint64_t ticket = ticket_.load(std::memory_order_acquire);;) {
    const auto chunk = static_cast<uint32_t>(ticket);
    if (ticket >> 32 != round || chunk >= chunks_.load(std::memory_order_relaxed)) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
      continue;
    const size_t begin = size_t{chunk} * kChunk;
    std::memcpy(to_ + begin, from_ + begin, std::min(kChunk, bytes_ - begin));
    done_.fetch_add(1, std::memory_order_release);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void CopyTeam::help() {
  ::prctl(PR_SET_NAME, "fargpu-copy");
  uint32_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const auto begin = Clock::now();
    uint32_t round = round_.load(std::memory_order_acquire);
    while (round == seen && Clock::now() - begin < kLook) {
      for (int i = 0; i < 16; ++i) __builtin_ia32_pause();
      round = round_.load(std::memory_order_acquire);
    }
    if (round == seen) {
      round_.wait(seen, std::memory_order_acquire);
      round = round_.load(std::memory_order_acquire);
    }
    seen = round;
    work(round);
  }
  running_.fetch_sub(1);
}

}  // namespace fargpu::client
