#include "client/bench/plan.h"

#include <map>
#include <string_view>

namespace fargpu::bench {

namespace {

constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
constexpr uint64_t kFrame = 32;  // bytes of a frame's header: the least that a call sends

const BareQuestion kRoundTrip{"round_trip", kFrame, 1};
const BareQuestion kNoBare{};

std::vector<uint64_t> sizes(const Scale& scale) {
  const std::vector<uint64_t> all =
      scale.quick
          ? std::vector<uint64_t>{4, 4 * kKiB, 64 * kKiB, kMiB, 32 * kMiB}
          : std::vector<uint64_t>{4,    64,        kKiB,      4 * kKiB,   16 * kKiB, 64 * kKiB,
                                  kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, kGiB};
  std::vector<uint64_t> fitting;
  for (const uint64_t bytes : all)
    if (bytes <= scale.largest) fitting.push_back(bytes);
  return fitting;
}

class Plan {
 public:
  Plan(const Scale& scale, const std::regex& only) : scale_(scale), only_(only) {}
  std::vector<Step> steps;

  void add(Step step, std::vector<std::string> records) {
    for (std::string& record : records)
      if (std::regex_search(case_name(record, step.question), only_))
        step.records.push_back(std::move(record));
    if (!step.records.empty()) steps.push_back(std::move(step));
  }
  void starts() {
    add({Phase::kStarts, named("start"), {}, kNoBare, scale_.quick ? 2U : 5U},
        {"session_start", "first_kernel", "image_load_cold", "image_load_cached"});
  }
  void calls() {
    call("call_local", kNoBare);
    call("call_deferred", kNoBare);
    call("call_sync", kRoundTrip);
    call("call_get", kRoundTrip);
    call("call_allocate", kRoundTrip);
    burst("call_async");
  }
  void launches() {
    burst("launch");
    call("launch_synchronize", kRoundTrip);
    call("event_record_synchronize", kRoundTrip);
    burst("graph_launch");
    call("graph_launch_synchronize", kRoundTrip);
    for (const unsigned threads : counts({1, 4}, {1, 2, 4, 8, 16}))
      add({Phase::kCalls, with_count("threads_launch_synchronize", threads), {}, kRoundTrip, 0},
          {"threads_launch_synchronize"});
    for (const unsigned streams : counts({16}, {1, 4, 16, 64}))
      add({Phase::kCalls, with_count("streams_launch", streams), {}, kNoBare, 0},
          {"streams_launch", "streams_launch_done"});
  }
  void copies() {
    for (const char* memory : {"pinned", "registered", "pageable"}) {
      if (scale_.quick && memory == std::string_view("registered")) continue;
      copy_sizes("host_to_device_memcpy_ce", memory, 0, "to_server");
      copy_sizes("device_to_host_memcpy_ce", memory, 0, "to_client");
    }
    const uint64_t both_from = scale_.quick ? 2 * kMiB : kMiB;
    copy_sizes("host_to_device_bidirectional_memcpy_ce", "pinned", both_from, "to_server");
    copy_sizes("device_to_host_bidirectional_memcpy_ce", "pinned", both_from, "to_client");
    copy_sizes("device_local_copy", "", 0, "");
    call("call_sync_beside_host_to_device", kRoundTrip);
    call("call_sync_beside_device_to_host", kRoundTrip);
    if (scale_.quick) return;
    call("call_get_beside_host_to_device", kRoundTrip);
    call("call_get_beside_device_to_host", kRoundTrip);
  }
  void sessions() {
    for (const unsigned sessions : counts({1, 4, 16}, {1, 4, 16, 64, 256}))
      add({Phase::kSessions,
           with_count("sessions_call_sync", sessions),
           {},
           {"round_trip", kFrame, sessions},
           1},
          {"sessions_call_sync"});
  }

 private:
  void call(const char* name, const BareQuestion& bare) {
    add({Phase::kCalls, named(name), {}, bare, 0}, {name});
  }
  void burst(const std::string& name) {
    add({Phase::kCalls, named(name), {}, kNoBare, 0}, {name, name + "_done"});
  }
  void copy_sizes(const char* name, const char* memory, uint64_t from, const char* bare) {
    for (const uint64_t bytes : sizes(scale_))
      if (bytes >= from)
        add({Phase::kCalls, {name, memory, bytes, 0, 0}, {}, {bare, bytes, 1}, 0}, {name});
  }
  static Question named(const std::string& name) { return {name, "", 0, 0, 0}; }
  static Question with_count(const char* name, unsigned count) { return {name, "", 0, count, 0}; }
  std::vector<unsigned> counts(const std::vector<unsigned>& quick,
                               const std::vector<unsigned>& whole) const {
    return scale_.quick ? quick : whole;
  }

  const Scale& scale_;
  const std::regex& only_;
};

}  // namespace

std::string size_name(uint64_t bytes) {
  for (const auto& [unit, name] : {std::pair(kGiB, "GiB"), {kMiB, "MiB"}, {kKiB, "KiB"}})
    if (bytes >= unit && bytes % unit == 0) return std::to_string(bytes / unit) + name;
  return std::to_string(bytes) + "B";
}

std::string case_name(const std::string& record, const Question& question) {
  std::string name = record;
  const auto add = [&name](const std::string& part) { name.append("/").append(part); };
  if (!question.memory.empty()) add(question.memory);
  if (question.bytes > 0) add(size_name(question.bytes));
  if (question.count > 0) add(std::to_string(question.count));
  return name;
}

std::string explain(const std::string& record) {
  static const std::map<std::string, const char*> kTexts{
      {"session_start", "cuInit and the primary context, in a new process"},
      {"first_kernel", "the same, and a first module and kernel, to its end"},
      {"image_load_cold", "cuModuleLoadData of an image that nobody has seen, 64 kernels"},
      {"image_load_cached", "the same image in another new process: the server knows it"},
      {"call_local", "a call that needs no server (cuCtxGetStreamPriorityRange)"},
      {"call_deferred", "a handle made and destroyed, without an answer (cuEventCreate, Destroy)"},
      {"call_sync", "a call that waits for the server (cuStreamQuery of an idle stream)"},
      {"call_get", "a call that waits for the server and tells nothing of streams (cuCtxGetLimit)"},
      {"call_allocate", "cuMemAlloc of 1 MiB and cuMemFree"},
      {"call_async", "a call that is not waited for (cuMemsetD32Async), the caller's time"},
      {"call_async_done", "the same, until all of a burst of 500 are done"},
      {"launch", "cuLaunchKernel, the caller's time"},
      {"launch_done", "the same, until all of a burst of 500 are done"},
      {"launch_synchronize", "a launch and cuStreamSynchronize"},
      {"event_record_synchronize", "cuEventRecord in an idle stream and cuEventSynchronize"},
      {"graph_launch", "cuGraphLaunch of 20 empty kernels in a row, the caller's time"},
      {"graph_launch_done", "the same, until all of a burst of 20 are done"},
      {"graph_launch_synchronize", "the same, one and cuStreamSynchronize"},
      {"threads_launch_synchronize", "launch and synchronise from so many threads at once"},
      {"streams_launch", "launches in so many streams in turn, the caller's time"},
      {"streams_launch_done", "the same, until all of a burst of 500 are done"},
      {"host_to_device_memcpy_ce", "cuMemcpyHtoDAsync and cuStreamSynchronize"},
      {"device_to_host_memcpy_ce", "cuMemcpyDtoHAsync and cuStreamSynchronize"},
      {"device_local_copy", "cuMemcpyDtoDAsync and cuStreamSynchronize"},
      {"host_to_device_bidirectional_memcpy_ce", "host to device while copies go the other way"},
      {"device_to_host_bidirectional_memcpy_ce", "device to host while copies go the other way"},
      {"call_sync_beside_host_to_device",
       "call_sync while another thread copies 16 MiB all the time; look at p99"},
      {"call_sync_beside_device_to_host", "the same, for copies to the host"},
      {"call_get_beside_host_to_device", "call_get beside copies to the device"},
      {"call_get_beside_device_to_host", "call_get beside copies to the host"},
      {"sessions_call_sync", "call_sync in so many processes at once, a session each"}};
  const auto found = kTexts.find(record);
  return found == kTexts.end() ? "" : found->second;
}

std::vector<Step> make_plan(const Scale& scale, const std::regex& only) {
  Plan plan(scale, only);
  plan.starts();
  plan.calls();
  plan.launches();
  plan.copies();
  plan.sessions();
  return std::move(plan.steps);
}

unsigned rounds_of(const Scale& scale) { return scale.quick ? 6 : 9; }

}  // namespace fargpu::bench
