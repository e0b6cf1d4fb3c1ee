#include "client/bench/observed.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>

namespace fargpu::bench {

namespace {

constexpr uint64_t kFormat = 1;
constexpr size_t kMostProcesses = 4096;

struct Wanted {
  const char* name;
  uint64_t& value;
};

Status read_counts(const Json& json, std::initializer_list<Wanted> wanted) {
  for (const Wanted& one : wanted) {
    FARGPU_ASSIGN_OR_RETURN(one.value, read_count(json, one.name));
  }
  return {};
}

Status read_waits(const Json& json, WaitCounts& of) {
  return read_counts(json, {{"waited", of.waited},
                            {"waited_ns", of.waited_ns},
                            {"round_trips", of.round_trips},
                            {"bytes_sent", of.bytes_sent},
                            {"bytes_received", of.bytes_received}});
}

Result<FunctionCalls> read_function(const Json& json) {
  FunctionCalls of;
  FARGPU_ASSIGN_OR_RETURN(of.name, read_text(json, "name"));
  FARGPU_RETURN_IF_ERROR(
      read_counts(json, {{"local", of.local}, {"sent", of.sent}, {"inside_ns", of.inside_ns}}));
  FARGPU_RETURN_IF_ERROR(read_waits(json, of));
  return of;
}

Result<PlaceCalls> read_place(const Json& json) {
  PlaceCalls of;
  FARGPU_ASSIGN_OR_RETURN(of.function, read_text(json, "function"));
  FARGPU_ASSIGN_OR_RETURN(of.place, read_text(json, "place"));
  FARGPU_ASSIGN_OR_RETURN(of.library, read_text(json, "library"));
  FARGPU_RETURN_IF_ERROR(read_waits(json, of));
  return of;
}

Result<RouteCopies> read_copies(const Json& json) {
  RouteCopies of;
  of.to_device = member(json, "to_device") == Json(true);
  FARGPU_ASSIGN_OR_RETURN(of.route, read_text(json, "route"));
  FARGPU_RETURN_IF_ERROR(read_counts(json, {{"copies", of.copies}, {"bytes", of.bytes}}));
  return of;
}

Result<RateLag> read_rate(const Json& json) {
  RateLag of;
  FARGPU_ASSIGN_OR_RETURN(of.bits_per_second, read_number(json, "bits_per_second"));
  FARGPU_ASSIGN_OR_RETURN(of.in_order_ns, read_number(json, "in_order_ns"));
  FARGPU_ASSIGN_OR_RETURN(of.overlapped_ns, read_number(json, "overlapped_ns"));
  return of;
}

template <typename T>
Status read_list(const Json& json, const char* name, Result<T> (*read)(const Json&),
                 std::vector<T>& to) {
  const Json& list = member(json, name);
  if (!list.is_array())
    return Status(StatusCode::kInvalidArgument, std::string("'") + name + "' is not a list");
  for (const Json& one : list) {
    FARGPU_ASSIGN_OR_RETURN(T value, read(one));
    to.push_back(std::move(value));
  }
  return {};
}

Status check_rates(const std::vector<RateLag>& rates) {
  double before = 0;
  for (const RateLag& one : rates) {
    if (one.bits_per_second <= before)
      return Status(StatusCode::kInvalidArgument, "'rates' is not in order");
    before = one.bits_per_second;
  }
  if (rates.empty()) return Status(StatusCode::kInvalidArgument, "'rates' is empty");
  return {};
}

Result<ProcessReport> read_process(const std::string& line) {
  FARGPU_ASSIGN_OR_RETURN(const Json json, parse_json(line, "report"));
  FARGPU_ASSIGN_OR_RETURN(const uint64_t format, read_count(json, "fargpu_report"));
  if (format != kFormat) return Status(StatusCode::kInvalidArgument, "a report of another release");
  ProcessReport of;
  FARGPU_ASSIGN_OR_RETURN(of.name, read_text(json, "process"));
  FARGPU_RETURN_IF_ERROR(
      read_counts(json, {{"begin_ns", of.begin_ns}, {"nanoseconds", of.nanoseconds}}));
  FARGPU_RETURN_IF_ERROR(read_list(json, "functions", read_function, of.functions));
  FARGPU_RETURN_IF_ERROR(read_list(json, "copies", read_copies, of.copies));
  FARGPU_RETURN_IF_ERROR(read_counts(
      member(json, "images"),
      {{"sent", of.images_sent}, {"bytes_sent", of.image_bytes_sent}, {"found", of.images_found}}));
  if (!member(json, "places").is_null()) {
    FARGPU_RETURN_IF_ERROR(read_counts(json, {{"looking_ns", of.looking_ns}}));
    FARGPU_RETURN_IF_ERROR(read_list(json, "places", read_place, of.places));
  }
  const Json& link = member(json, "link");
  FARGPU_RETURN_IF_ERROR(read_counts(link, {{"round_trips", of.round_trips},
                                            {"in_a_row", of.in_a_row},
                                            {"most_of_a_thread", of.most_of_a_thread}}));
  FARGPU_RETURN_IF_ERROR(read_list(link, "rates", read_rate, of.rates));
  FARGPU_RETURN_IF_ERROR(check_rates(of.rates));
  return of;
}

}  // namespace

Result<std::vector<ProcessReport>> read_reports(const std::string& text) {
  std::vector<ProcessReport> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    auto process = read_process(line);
    const std::string where = "line " + std::to_string(all.size() + 1) + ": ";
    if (!process.ok())
      return Status(StatusCode::kInvalidArgument, where + process.status().message());
    if (all.size() == kMostProcesses)
      return Status(StatusCode::kInvalidArgument, where + "more than 4096 processes");
    all.push_back(std::move(*process));
  }
  return all;
}

FunctionCalls& FunctionCalls::operator+=(const FunctionCalls& more) {
  WaitCounts::operator+=(more);
  local += more.local;
  sent += more.sent;
  inside_ns += more.inside_ns;
  return *this;
}

WaitCounts& WaitCounts::operator+=(const WaitCounts& more) {
  waited += more.waited;
  waited_ns += more.waited_ns;
  round_trips += more.round_trips;
  bytes_sent += more.bytes_sent;
  bytes_received += more.bytes_received;
  return *this;
}

std::vector<PlaceCalls> places_of(const std::vector<ProcessReport>& processes) {
  std::map<std::tuple<std::string, std::string, std::string>, PlaceCalls> sums;
  for (const ProcessReport& process : processes) {
    for (const PlaceCalls& of : process.places) {
      const auto [at, is_new] = sums.try_emplace({of.function, of.place, of.library}, of);
      if (!is_new) at->second += of;
    }
  }
  std::vector<PlaceCalls> all;
  for (auto& [key, sum] : sums) all.push_back(std::move(sum));
  std::stable_sort(all.begin(), all.end(), [](const PlaceCalls& a, const PlaceCalls& b) {
    return a.waited_ns > b.waited_ns;
  });
  return all;
}

std::vector<FunctionCalls> functions_of(const std::vector<ProcessReport>& processes) {
  std::map<std::string, FunctionCalls> sums;
  for (const ProcessReport& process : processes) {
    for (const FunctionCalls& of : process.functions) {
      FunctionCalls& sum = sums[of.name];
      sum.name = of.name;
      sum += of;
    }
  }
  std::vector<FunctionCalls> all;
  for (auto& [name, sum] : sums) all.push_back(std::move(sum));
  return all;
}

}  // namespace fargpu::bench
