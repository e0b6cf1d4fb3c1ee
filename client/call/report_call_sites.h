// Where in the program calls waited (FARGPU_REPORT_WHERE=1): counts by function and call site, for
// the report. On: a look at the stack and a lock for each call that waited, on its way out. Any
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fargpu::client::report {

struct OfCallSite {
  uint64_t waited = 0, nanoseconds = 0, round_trips = 0, bytes_sent = 0, bytes_received = 0;
};

struct CallSite {
  size_t function;  // report_counts.h
  std::string site, library;
  OfCallSite counts;
};

// What is kept of one process: the first call sites that were met, and what all others did.
class CallSites {
 public:
  static constexpr size_t kMost = 4096;
  // Stands for call sites behind the first ones.
  static constexpr const char* kElsewhere = "elsewhere";

  void add(size_t function, const std::string& site, const std::string& library,
           const OfCallSite& more);
  // The longest waits first.
  std::vector<CallSite> sorted() const;

 private:
  struct Key {
    size_t function;
    std::string site, library;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, OfCallSite> sites_;
};

namespace call_sites {

inline constinit std::atomic<bool> is_on{false};
inline bool enabled() { return is_on.load(std::memory_order_relaxed); }

// Reads FARGPU_REPORT_WHERE. Once, while the report is started.
void start_if_asked();
// A call that waited, from its own thread. It is lost where memory runs out.
void count(size_t function, const OfCallSite& call) noexcept;
struct Found {
  std::vector<CallSite> sites;
  uint64_t looking_ns = 0;  // what looking took, of all threads
};
Found so_far();
// In a forked child, whose other threads do not exist.
void forget_after_fork();

}  // namespace call_sites
}  // namespace fargpu::client::report
