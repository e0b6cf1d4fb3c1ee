#include "client/bench/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "client/bench/advice.h"
#include "common/base/parse.h"

namespace fargpu::bench {

namespace {

constexpr size_t kMostFunctions = 8, kMostAdvice = 5, kMostPlaces = 10, kMostPlacesOfAdvice = 3;
constexpr double kWorthSaying = 0.05;  // how far a range is from its value

std::string seconds(double nanoseconds) {
  const double value = nanoseconds / 1e9;
  return fmt::format("{:.{}f} s", value, value < 1 ? 4 : value < 100 ? 3 : 1);
}

std::string show_rtt(double nanoseconds) {
  return nanoseconds >= 1e6 ? fmt::format("{:g} ms", nanoseconds / 1e6)
                            : fmt::format("{:g} us", nanoseconds / 1e3);
}

std::string show_bandwidth(double bits_per_second) {
  return bits_per_second <= 0 ? "no limit" : fmt::format("{:g} Gb/s", bits_per_second / 1e9);
}

template <typename... Values>
void line(std::string& out, const char* title, fmt::format_string<Values...> form,
          Values&&... values) {
  fmt::format_to(std::back_inserter(out), "  {:<16}", title);
  fmt::format_to(std::back_inserter(out), form, std::forward<Values>(values)...);
  out += '\n';
}

std::string copies(const Run& run, bool to_device) {
  std::map<std::string, RouteCopies> sums;
  RouteCopies all;
  for (const ProcessReport& process : run.processes) {
    for (const RouteCopies& one : process.copies) {
      if (one.to_device != to_device) continue;
      RouteCopies& sum = sums[one.route];
      sum.copies += one.copies;
      sum.bytes += one.bytes;
      all.copies += one.copies;
      all.bytes += one.bytes;
    }
  }
  std::string out = fmt::format("{} bytes in {} copies", all.bytes, all.copies);
  const char* separator = ": ";
  for (const auto& [route, sum] : sums) {
    out += fmt::format("{}{} {} ({} bytes)", separator, route, sum.copies, sum.bytes);
    separator = ", ";
  }
  return out;
}

std::string waits(std::vector<FunctionCalls> functions) {
  std::erase_if(functions, [](const FunctionCalls& of) { return of.waited == 0; });
  std::stable_sort(
      functions.begin(), functions.end(),
      [](const FunctionCalls& a, const FunctionCalls& b) { return a.waited_ns > b.waited_ns; });
  std::string out = fmt::format("\n{:<36}{:>9}{:>13}{:>12}{:>14}{:>14}\n", "calls that waited",
                                "calls", "round trips", "time", "bytes there", "bytes back");
  for (size_t i = 0; i < functions.size() && i < kMostFunctions; ++i) {
    const FunctionCalls& of = functions[i];
    fmt::format_to(std::back_inserter(out), "{:<36}{:>9}{:>13}{:>12}{:>14}{:>14}\n", of.name,
                   of.waited, of.round_trips, seconds(static_cast<double>(of.waited_ns)),
                   of.bytes_sent, of.bytes_received);
  }
  if (functions.size() > kMostFunctions)
    fmt::format_to(std::back_inserter(out), "and {} more\n", functions.size() - kMostFunctions);
  return out;
}

bool is_wide(const Prediction& one) {
  return one.longest - one.nanoseconds > kWorthSaying * one.nanoseconds ||
         one.nanoseconds - one.shortest > kWorthSaying * one.nanoseconds;
}

}  // namespace

std::string show_link(const Link& link) {
  return show_rtt(link.rtt_ns) + ", " + show_bandwidth(link.bits_per_second);
}

std::string describe_run(const Run& run, const std::string& program) {
  const std::vector<FunctionCalls> functions = functions_of(run.processes);
  FunctionCalls sum;
  for (const FunctionCalls& of : functions) sum += of;
  uint64_t round_trips = 0, row = 0, most = 0, sent = 0, bytes = 0, found = 0;
  for (const ProcessReport& process : run.processes) {
    round_trips += process.round_trips;
    row += process.in_a_row;
    most += process.most_of_a_thread;
    sent += process.images_sent;
    bytes += process.image_bytes_sent;
    found += process.images_found;
  }
  const size_t count = run.processes.size();
  std::string out = fmt::format("fargpu: {} took {}{}:\n", program, seconds(run.nanoseconds),
                                count == 1 ? "" : fmt::format(", {} processes", count));
  line(out, "calls", "{}: {} answered in the client, {} sent, {} waited for the server",
       sum.local + sum.sent + sum.waited, sum.local, sum.sent, sum.waited);
  line(out, "time in calls", "{}, of it {} in calls that waited, of all threads",
       seconds(static_cast<double>(sum.inside_ns)), seconds(static_cast<double>(sum.waited_ns)));
  line(out, "round trips", "{}: {} in a row, {} of the busiest thread", round_trips, row, most);
  line(out, "host to device", "{}", copies(run, true));
  line(out, "device to host", "{}", copies(run, false));
  line(out, "images", "{} sent as {} bytes, {} found at the server", sent, bytes, found);
  return out + waits(functions);
}

std::string describe_places(const Run& run) {
  const std::vector<PlaceCalls> places = places_of(run.processes);
  if (places.empty()) return {};
  uint64_t looking = 0;
  for (const ProcessReport& process : run.processes) looking += process.looking_ns;
  std::string out = fmt::format("\n{:>9}{:>12}  {} (looking took {} of the run)\n", "calls", "time",
                                "waited at", seconds(static_cast<double>(looking)));
  for (size_t i = 0; i < places.size() && i < kMostPlaces; ++i) {
    const PlaceCalls& of = places[i];
    fmt::format_to(std::back_inserter(out), "{:>9}{:>12}  {} ({}{}{})\n", of.waited,
                   seconds(static_cast<double>(of.waited_ns)), of.place, of.function,
                   of.library.empty() ? "" : ", by ", of.library);
  }
  if (places.size() > kMostPlaces)
    fmt::format_to(std::back_inserter(out), "and {} more\n", places.size() - kMostPlaces);
  return out;
}

std::string describe_link(const Run& run, const Link& link, const Shares& shares) {
  const Prediction one = predict(run, link, shares);
  std::string out = fmt::format("{}: {}", show_link(link), seconds(one.nanoseconds));
  if (is_wide(one))
    out += fmt::format(" (between {} and {})", seconds(one.shortest), seconds(one.longest));
  return out;
}

std::string describe_links(const Run& run, const std::vector<double>& rtts_ns,
                           const std::vector<double>& bits_per_second, const Shares& shares) {
  std::string out = fmt::format("\n{:<16}", "predicted");
  for (const double rate : bits_per_second)
    fmt::format_to(std::back_inserter(out), "{:>14}", show_bandwidth(rate));
  bool any_wide = false;
  for (const double rtt : rtts_ns) {
    fmt::format_to(std::back_inserter(out), "\n{:<16}", show_rtt(rtt));
    for (const double rate : bits_per_second) {
      const Prediction one = predict(run, {rtt, rate}, shares);
      any_wide |= is_wide(one);
      fmt::format_to(std::back_inserter(out), "{:>13}{}", seconds(one.nanoseconds),
                     is_wide(one) ? '*' : ' ');
    }
  }
  out += '\n';
  if (any_wide)
    out +=
        "* depends on what overlaps, which one run does not show; --json has the range, --fit "
        "narrows it\n";
  return out;
}

std::string describe_advice(const Run& run, const Link& link, const Shares& shares) {
  std::string out = fmt::format("\nwhat would help most at {}:\n", show_link(link));
  const std::vector<Advice> all = advise(run, link, shares, kMostAdvice);
  for (const Advice& one : all) {
    out += "  " + to_text(one) + "\n";
    for (const std::string& place : places_to_text(one, kMostPlacesOfAdvice))
      out += "      " + place + "\n";
    if (const std::string what = instead_of(one.function.name); !what.empty())
      out += "      " + what + "\n";
  }
  if (all.empty()) out += "  nothing: no function has 1 % of the time\n";
  return out;
}

}  // namespace fargpu::bench
