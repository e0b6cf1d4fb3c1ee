#include "client/bench/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "common/base/parse.h"

namespace fargpu::bench {

namespace {

constexpr double kWorthNaming = 0.01;

// The part of all round trips that is in a row.
double part_in_a_row(const Run& run, const Shares& shares) {
  double all = 0, row = 0;
  for (const ProcessReport& process : run.processes) {
    const auto most = static_cast<double>(process.most_of_a_thread);
    all += static_cast<double>(process.round_trips);
    row += most + shares.waits * (static_cast<double>(process.in_a_row) - most);
  }
  return all > 0 ? std::clamp(row / all, 0.0, 1.0) : 0;
}

struct Instead {
  std::string_view part;  // of the function's name
  std::string_view what;
};
constexpr Instead kInstead[] = {
    {"Query", "wait once (cuEventSynchronize, cuStreamSynchronize), or ask less often"},
    {"DtoH", "gather results on the device and copy them once, or asynchronously and wait once"},
    {"HtoD", "copy larger pieces, asynchronously from pinned memory, ahead of their use"},
    {"Memcpy", "copy larger pieces, asynchronously, and wait once"},
    {"Synchronize", "wait less often; work in one stream keeps its order without it"},
    {"MemAlloc", "allocate once and use it again, or from a pool (cuMemAllocAsync)"},
    {"MemFree", "free once at the end, or into a pool (cuMemFreeAsync)"},
    {"HostAlloc", "allocate once and use it again"},
    {"Module", "load once; a server keeps the image for the next run"},
    {"Library", "load once; a server keeps the image for the next run"},
};

std::vector<PlaceCalls> places_of(const Run& run, const std::string& function) {
  std::vector<PlaceCalls> all = bench::places_of(run.processes);
  std::erase_if(
      all, [&](const PlaceCalls& of) { return of.function != function || of.round_trips == 0; });
  std::stable_sort(all.begin(), all.end(), [](const PlaceCalls& a, const PlaceCalls& b) {
    return a.round_trips > b.round_trips;
  });
  return all;
}

}  // namespace

std::vector<Advice> advise(const Run& run, const Link& link, const Shares& shares, size_t most) {
  const double row = part_in_a_row(run, shares);
  const double time = predict(run, link, shares).nanoseconds;
  std::vector<Advice> all;
  for (FunctionCalls& of : functions_of(run.processes)) {
    Advice one;
    one.waits_ns = static_cast<double>(of.round_trips) * row * link.rtt_ns;
    if (link.bits_per_second > 0)
      one.bytes_ns =
          static_cast<double>(of.bytes_sent + of.bytes_received) * 8e9 / link.bits_per_second;
    one.share = time > 0 ? (one.waits_ns + one.bytes_ns) / time : 0;
    one.function = std::move(of);
    if (one.share >= kWorthNaming) all.push_back(std::move(one));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Advice& a, const Advice& b) { return a.share > b.share; });
  if (all.size() > most) all.resize(most);
  for (Advice& one : all) one.places = places_of(run, one.function.name);
  return all;
}

std::string to_text(const Advice& advice) {
  const FunctionCalls& of = advice.function;
  const uint64_t bytes = of.bytes_sent + of.bytes_received;
  std::string what;
  if (of.round_trips > 0) {
    what = fmt::format("{} wait{} in {}", of.round_trips, of.round_trips == 1 ? "" : "s", of.name);
    const uint64_t each = bytes / of.round_trips;
    if (each > 0)
      what += each < 10000 ? fmt::format(", {} bytes each", each)
                           : fmt::format(", {} each", format_bytes(each));
  } else {
    what = fmt::format("{} in {}", format_bytes(bytes), of.name);
  }
  return fmt::format("{}: {:.0f} % of the time", what, advice.share * 100);
}

std::vector<std::string> places_to_text(const Advice& advice, size_t most) {
  std::vector<std::string> lines;
  for (const PlaceCalls& of : advice.places) {
    if (lines.size() == most) break;
    lines.push_back(fmt::format("from {}: {}{}{}", of.place, of.round_trips,
                                of.library.empty() ? "" : " by ", of.library));
  }
  return lines;
}

std::string instead_of(const std::string& function) {
  for (const Instead& one : kInstead)
    if (function.find(one.part) != std::string::npos) return std::string(one.what);
  return {};
}

}  // namespace fargpu::bench
