#include "common/copy/thread_team.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "common/base/env.h"
#include "common/host/thread.h"

namespace fargpu {
namespace {

using Clock = std::chrono::steady_clock;

// A helper looks for the next piece of large work for this long before it sleeps; pieces follow
// each other within tens of microseconds.
constexpr auto kLook = std::chrono::microseconds(100);

}  // namespace

ThreadTeam& ThreadTeam::get() {
  static auto& team = *new ThreadTeam(usual_threads());
  return team;
}

unsigned ThreadTeam::usual_threads() {
  // The settings were checked before.
  const auto wish = env_integer("FARGPU_COPY_THREADS", 0);
  if (wish.ok() && *wish != 0) return static_cast<unsigned>(std::min<uint64_t>(*wish, 64));
  return std::clamp(std::thread::hardware_concurrency() / 4, 1u, 4u);
}

ThreadTeam::~ThreadTeam() {
  stop_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
  while (running_.load() != 0) std::this_thread::yield();
}

void ThreadTeam::start() {
  started_ = true;
  for (unsigned i = 0; i < helpers_; ++i) {
    running_.fetch_add(1);
    Thread([this] { help(); }).detach();
  }
}

void ThreadTeam::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;  // memcpy wants true addresses even then
  if (bytes < kAlone) {
    std::memcpy(to, from, bytes);
    return;
  }
  run((bytes + kChunk - 1) / kChunk, [&](size_t chunk) {
    const size_t begin = chunk * kChunk;
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                std::min(kChunk, bytes - begin));
  });
}

ThreadTeam::Job::Job(ThreadTeam& team, size_t parts, const std::function<void(size_t part)>& work)
    : team_(team), work_(work), parts_(parts), lock_(team.one_at_a_time_, std::defer_lock) {
  if (team.helpers_ == 0 || parts < 2 || parts > UINT32_MAX || !lock_.try_lock()) return;
  if (!team.started_) team.start();
  round_ = team.round_.load(std::memory_order_relaxed) + 1;
  team.job_ = &work;
  team.done_.store(0, std::memory_order_relaxed);
  team.parts_.store(static_cast<uint32_t>(parts), std::memory_order_relaxed);
  team.ticket_.store(uint64_t{round_} << 32, std::memory_order_release);
  team.round_.store(round_, std::memory_order_release);
  team.round_.notify_all();
}

void ThreadTeam::Job::finish() {
  const size_t parts = std::exchange(parts_, 0);
  if (!lock_.owns_lock()) {
    for (size_t part = 0; part < parts; ++part) work_(part);
    return;
  }
  team_.work(round_);
  // A helper that has taken the last part is in the middle of it: this is short unless it has lost
  // its core.
  for (unsigned looks = 0; team_.done_.load(std::memory_order_acquire) != parts; ++looks) {
    if (looks < 20000) {
      __builtin_ia32_pause();
    } else {
      std::this_thread::yield();
    }
  }
  lock_.unlock();
}

void ThreadTeam::work(uint32_t round) {
  for (uint64_t ticket = ticket_.load(std::memory_order_acquire);;) {
    const auto part = static_cast<uint32_t>(ticket);
    if (ticket >> 32 != round || part >= parts_.load(std::memory_order_relaxed)) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
      continue;
    (*job_)(part);
    done_.fetch_add(1, std::memory_order_release);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadTeam::help() {
  ::prctl(PR_SET_NAME, "fargpu-team");
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

}  // namespace fargpu
