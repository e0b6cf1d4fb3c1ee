#include "client/bench/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace fargpu::bench {

namespace {

constexpr double kRateFrom = 64 << 10;  // bytes

using Key = std::pair<std::string, std::string>;  // case, way

struct Row {
  std::string name, bare;
  double bytes = 0;
};

double number_or(const Json& json, const char* name, double otherwise) {
  const auto value = read_number(json, name);
  return value.ok() ? *value : otherwise;
}

// The results by case and way, and the order of both.
struct View {
  std::map<Key, const Json*> results;
  std::vector<Row> rows;
  std::vector<std::string> ways;  // native first, no bare links

  explicit View(const Json& all) {
    for (const Json& one : member(all, "results")) {
      const std::string name = text_or(one, "case", ""), way = text_or(one, "way", "");
      results.emplace(Key(name, way), &one);
      if (way.starts_with("bare-")) continue;
      if (std::find(ways.begin(), ways.end(), way) == ways.end())
        ways.insert(way == "native" ? ways.begin() : ways.end(), way);
      if (std::none_of(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; }))
        rows.push_back({name, text_or(one, "bare", ""), number_or(one, "bytes", 0)});
    }
  }
  double median(const std::string& name, const std::string& way) const {
    const auto found = results.find({name, way});
    return found == results.end() ? 0 : number_or(*found->second, "median", 0);
  }
};

std::string ratio(double of, double to) {
  return of > 0 && to > 0 ? fmt::format("{:.2f}", of / to) : "";
}

std::string second_column(const View& view, const Row& row, const std::string& way, double median) {
  if (row.bytes >= kRateFrom) return show_rate(row.bytes * 1e9 / median);
  return show_time(number_or(*view.results.at({row.name, way}), "p99", 0));
}

std::string cells(const View& view, const Row& row, const std::string& way) {
  const double median = view.median(row.name, way);
  const bool native = way == "native";
  if (median <= 0)
    return fmt::format("  {:>9} {:>10}{}", "-", "", native ? "" : std::string(14, ' '));
  std::string text =
      fmt::format("  {:>9} {:>10}", show_time(median), second_column(view, row, way, median));
  if (!native)
    text += fmt::format(" {:>6} {:>6}", ratio(median, view.median(row.name, "native")),
                        ratio(median, view.median(row.bare, "bare-" + way)));
  return text;
}

std::string without_blanks_at_end(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::string heading(const View& view, size_t width) {
  std::string above = fmt::format("{:<{}}", "", width), below = above;
  for (const std::string& way : view.ways) {
    const bool native = way == "native";
    above += fmt::format("  {:<{}}", way, native ? 20 : 34);
    below += fmt::format("  {:>9} {:>10}", "median", "p99, rate");
    if (!native) below += fmt::format(" {:>6} {:>6}", "native", "bare");
  }
  return without_blanks_at_end(above) + "\n" + below + "\n";
}

}  // namespace

std::string show_time(double nanoseconds) {
  if (nanoseconds < 1e3) return fmt::format("{:.0f} ns", nanoseconds);
  if (nanoseconds < 1e6)
    return fmt::format("{:.{}f} us", nanoseconds / 1e3, nanoseconds < 1e5 ? 2 : 1);
  if (nanoseconds < 1e9) return fmt::format("{:.2f} ms", nanoseconds / 1e6);
  return fmt::format("{:.2f} s", nanoseconds / 1e9);
}

std::string show_rate(double bytes_per_second) {
  if (bytes_per_second < 1e9) return fmt::format("{:.0f} MB/s", bytes_per_second / 1e6);
  return fmt::format("{:.{}f} GB/s", bytes_per_second / 1e9, bytes_per_second < 1e11 ? 1 : 0);
}

std::string make_table(const Json& results) {
  const View view(results);
  if (view.rows.empty()) return "nothing was measured\n";
  size_t width = 0;
  for (const Row& row : view.rows) width = std::max(width, row.name.size());
  std::string text = heading(view, width);
  for (const Row& row : view.rows) {
    std::string line = fmt::format("{:<{}}", row.name, width);
    for (const std::string& way : view.ways) line += cells(view, row, way);
    text += without_blanks_at_end(line) + "\n";
  }
  return text;
}

}  // namespace fargpu::bench
