#include "client/bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "client/bench/table.h"

namespace fargpu::bench {

namespace {

constexpr double kLeastChange = 1.05;
constexpr double kClockStep = 1.5;  // ns; medians are whole nanoseconds
constexpr uint64_t kLeastRounds = 5;

struct Measured {
  double median = 0, low = 0, high = 0;
  uint64_t rounds = 0;
};
using Key = std::pair<std::string, std::string>;  // case, way

Result<std::pair<Key, Measured>> read_one(const Json& json) {
  Measured measured;
  FARGPU_ASSIGN_OR_RETURN(const std::string name, read_text(json, "case"));
  FARGPU_ASSIGN_OR_RETURN(const std::string way, read_text(json, "way"));
  FARGPU_ASSIGN_OR_RETURN(measured.median, read_number(json, "median"));
  FARGPU_ASSIGN_OR_RETURN(measured.rounds, read_count(json, "rounds"));
  const Json& interval = member(json, "median_interval");
  if (!interval.is_array() || interval.size() != 2 || !interval[0].is_number() ||
      !interval[1].is_number())
    return Status(StatusCode::kInvalidArgument, "'median_interval' is not two numbers");
  measured.low = interval[0].get<double>();
  measured.high = interval[1].get<double>();
  return std::pair(Key(name, way), measured);
}

Result<std::map<Key, Measured>> read_all(const Json& results, const char* which) {
  std::map<Key, Measured> all;
  size_t index = 0;
  for (const Json& json : member(results, "results")) {
    auto one = read_one(json);
    if (!one.ok()) {
      return Status(StatusCode::kInvalidArgument, fmt::format("result {} of the {} file: {}", index,
                                                              which, one.status().message()));
    }
    all.insert(std::move(*one));
    ++index;
  }
  return all;
}

Change::Kind judge(const Measured& before, const Measured& now) {
  if (std::min(before.rounds, now.rounds) < kLeastRounds) return Change::Kind::kUnknown;
  if (std::abs(now.median - before.median) < kClockStep) return Change::Kind::kSame;
  if (now.low > before.high && now.median > before.median * kLeastChange)
    return Change::Kind::kSlower;
  if (now.high < before.low && now.median * kLeastChange < before.median)
    return Change::Kind::kFaster;
  return Change::Kind::kSame;
}

void add_caution(const Json& before, const Json& now, const char* part, const char* name,
                 std::vector<std::string>& cautions) {
  const bool is_whole = *part == '\0';
  const std::string was = text_or(is_whole ? before : member(before, part), name, "");
  const std::string is = text_or(is_whole ? now : member(now, part), name, "");
  if (was != is)
    cautions.push_back(
        fmt::format("{}{}{}: '{}' before, '{}' now", part, is_whole ? "" : " ", name, was, is));
}

// Ways of `now` through fargpu that failed, of those that were measured before.
template <typename Measurements>
std::vector<std::string> lost_ways(const Measurements& before, const Json& now) {
  std::set<std::string> measured, lost;
  for (const auto& [key, value] : before) measured.insert(key.second);
  for (const Json& skip : member(now, "skipped")) {
    const std::string way = text_or(skip, "way", "");
    if (text_or(skip, "case", "").empty() && measured.contains(way) && way != "native" &&
        !way.starts_with("bare-"))
      lost.insert(way);
  }
  return {lost.begin(), lost.end()};
}

const char* to_string(Change::Kind kind) {
  return kind == Change::Kind::kSlower ? "slower" : "faster";
}

}  // namespace

bool Comparison::slower() const {
  return !lost.empty() || std::any_of(changes.begin(), changes.end(), [](const Change& change) {
    return change.kind == Change::Kind::kSlower;
  });
}

Result<Comparison> compare(const Json& before, const Json& now) {
  FARGPU_ASSIGN_OR_RETURN(const auto old_ones, read_all(before, "older"));
  FARGPU_ASSIGN_OR_RETURN(const auto new_ones, read_all(now, "newer"));
  Comparison comparison;
  for (const auto& [part, name] : {std::pair("machine", "host"),
                                   {"machine", "cpu"},
                                   {"machine", "governor"},
                                   {"machine", "clock"},
                                   {"gpu", "name"},
                                   {"gpu", "driver"},
                                   {"server", "address"},
                                   {"", "link"}})
    add_caution(before, now, part, name, comparison.cautions);
  for (const auto& [key, is] : new_ones) {
    const auto was = old_ones.find(key);
    if (was == old_ones.end()) {
      ++comparison.only_now;
      continue;
    }
    comparison.changes.push_back(
        {key.first, key.second, was->second.median, is.median, judge(was->second, is)});
  }
  comparison.lost = lost_ways(old_ones, now);
  comparison.only_before = old_ones.size() - comparison.changes.size();
  return comparison;
}

Json to_json(const Comparison& comparison) {
  Json changes = Json::array();
  for (const Change& change : comparison.changes) {
    if (change.kind != Change::Kind::kSlower && change.kind != Change::Kind::kFaster) continue;
    changes.push_back({{"case", change.name},
                       {"way", change.way},
                       {"before", change.before},
                       {"now", change.now},
                       {"kind", to_string(change.kind)}});
  }
  return {{"changes", changes}, {"cautions", comparison.cautions}, {"lost", comparison.lost}};
}

std::string to_text(const Comparison& comparison) {
  std::string text;
  for (const std::string& caution : comparison.cautions)
    text += fmt::format("not the same: {}\n", caution);
  for (const std::string& way : comparison.lost)
    text += fmt::format("lost    {}: it was measured before, and failed now\n", way);
  size_t same = 0, unknown = 0, slower = 0, faster = 0;
  for (const Change& change : comparison.changes) {
    if (change.kind == Change::Kind::kSame) {
      ++same;
    } else if (change.kind == Change::Kind::kUnknown) {
      ++unknown;
    } else {
      ++(change.kind == Change::Kind::kSlower ? slower : faster);
      text += fmt::format("{}  {:<48} {:<10} {:>10} -> {:>10}  x {:.2f}\n", to_string(change.kind),
                          change.name, change.way, show_time(change.before), show_time(change.now),
                          change.before > 0 ? change.now / change.before : 0);
    }
  }
  text += fmt::format("{} slower, {} faster, {} unchanged within the noise", slower, faster, same);
  if (unknown > 0) text += fmt::format(", {} with fewer than {} rounds", unknown, kLeastRounds);
  if (comparison.only_before > 0) text += fmt::format(", {} only before", comparison.only_before);
  if (comparison.only_now > 0) text += fmt::format(", {} only now", comparison.only_now);
  return text + "\n";
}

}  // namespace fargpu::bench
