#include "client/call/report_call_sites.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "client/where/where.h"
#include "common/base/env.h"

namespace fargpu::client::report {

void CallSites::add(size_t function, const std::string& site, const std::string& library,
                    const OfCallSite& more) {
  Key key{function, site, library};
  auto found = sites_.find(key);
  if (found == sites_.end()) {
    if (sites_.size() >= kMost) key = {function, kElsewhere, {}};
    found = sites_.try_emplace(std::move(key)).first;
  }
  OfCallSite& sum = found->second;
  sum.waited += more.waited;
  sum.nanoseconds += more.nanoseconds;
  sum.round_trips += more.round_trips;
  sum.bytes_sent += more.bytes_sent;
  sum.bytes_received += more.bytes_received;
}

std::vector<CallSite> CallSites::sorted() const {
  std::vector<CallSite> all;
  for (const auto& [key, counts] : sites_)
    all.push_back({key.function, key.site, key.library, counts});
  std::stable_sort(all.begin(), all.end(), [](const CallSite& a, const CallSite& b) {
    return a.counts.nanoseconds > b.counts.nanoseconds;
  });
  return all;
}

namespace call_sites {
namespace {

using Clock = std::chrono::steady_clock;

// Constructed again in a forked child, where its owner may not exist.
alignas(std::mutex) constinit std::mutex mutex;
constinit CallSites* all = nullptr;  // guarded by the mutex; never freed: calls come until the end
constinit uint64_t looking_ns = 0;   // the same

}  // namespace

void start_if_asked() {
  // Reading the settings reports a value that is neither yes nor no.
  const auto wanted = env_bool("FARGPU_REPORT_WHERE", false);
  if (!wanted.ok() || !*wanted) return;
  where::start();
  is_on.store(true, std::memory_order_relaxed);
}

void count(size_t function, const OfCallSite& call) noexcept try {
  const Clock::time_point begin = Clock::now();
  const where::CallSite site = where::here();
  const Clock::duration took = Clock::now() - begin;
  const std::lock_guard lock(mutex);
  if (all == nullptr) all = new CallSites;
  all->add(function, site.text, site.library, call);
  looking_ns += static_cast<uint64_t>(std::chrono::nanoseconds(took).count());
} catch (const std::bad_alloc&) {
  // The report lacks a call; the program goes on.
}

Found so_far() {
  const std::lock_guard lock(mutex);
  return all == nullptr ? Found{} : Found{all->sorted(), looking_ns};
}

void forget_after_fork() {
  new (&mutex) std::mutex;
  all = nullptr;
  looking_ns = 0;
  where::forget_after_fork();
}

}  // namespace call_sites
}  // namespace fargpu::client::report
