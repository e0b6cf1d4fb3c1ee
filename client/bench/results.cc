#include "client/bench/results.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

namespace fargpu::bench {

namespace {

constexpr size_t kLargestFile = 64 << 20;
constexpr double kNanosecondsPerSecond = 1e9;

Json to_json(const Figure& figure) {
  const Histogram& times = figure.times;
  const Median median = median_of(figure.round_medians);
  Json json{{"case", figure.name}, {"way", figure.way}, {"record", figure.record}};
  if (!figure.question.memory.empty()) json["memory"] = figure.question.memory;
  if (figure.question.bytes > 0) json["bytes"] = figure.question.bytes;
  if (figure.question.count > 0) json["count"] = figure.question.count;
  if (!figure.bare.empty()) json["bare"] = figure.bare;
  json["unit"] = "ns";
  json["samples"] = times.count();
  json["rounds"] = median.rounds;
  json["median"] = median.value;
  json["median_interval"] = {median.low, median.high};
  json["confidence"] = median.confidence();
  json["round_medians"] = figure.round_medians;
  json["min"] = times.smallest();
  json["mean"] = times.mean();
  json["p50"] = times.percentile(50);
  json["p90"] = times.percentile(90);
  json["p99"] = times.percentile(99);
  json["p99.9"] = times.percentile(99.9);
  json["max"] = times.largest();
  if (median.value > 0) {
    json["per_second"] = kNanosecondsPerSecond / median.value;
    if (figure.question.bytes > 0)
      json["bytes_per_second"] =
          static_cast<double>(figure.question.bytes) * kNanosecondsPerSecond / median.value;
  }
  if (!figure.shares.empty()) {
    const Fairness fairness = fairness_of(figure.shares);
    json["fairness"] = {{"most_to_least", fairness.most_to_least}, {"jain", fairness.jain}};
    json["shares"] = to_json(figure.shares);
  }
  json["histogram"] = to_json(times);
  return json;
}

}  // namespace

double Median::confidence() const {
  return rounds == 0 ? 0 : 1 - std::pow(2.0, 1 - static_cast<double>(rounds));
}

Median median_of(const std::vector<double>& round_medians) {
  if (round_medians.empty()) return {};
  std::vector<double> sorted = round_medians;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  const double value =
      sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return {value, sorted.front(), sorted.back(), sorted.size()};
}

Fairness fairness_of(const std::vector<Share>& shares) {
  if (shares.empty()) return {};
  double sum = 0, squares = 0;
  uint64_t least = UINT64_MAX, most = 0;
  for (const Share& share : shares) {
    const auto count = static_cast<double>(share.count);
    sum += count;
    squares += count * count;
    least = std::min(least, share.count);
    most = std::max(most, share.count);
  }
  Fairness fairness;
  if (least > 0) fairness.most_to_least = static_cast<double>(most) / static_cast<double>(least);
  if (squares > 0) fairness.jain = sum * sum / (static_cast<double>(shares.size()) * squares);
  return fairness;
}

Json to_json(const Results& results) {
  Json json{{"fargpu_bench", kFormat}};
  for (const auto& [name, value] : results.about.items()) json[name] = value;
  json["results"] = Json::array();
  for (const Figure& figure : results.figures) json["results"].push_back(to_json(figure));
  json["skipped"] = Json::array();
  for (const Skip& skip : results.skips)
    json["skipped"].push_back({{"case", skip.name}, {"way", skip.way}, {"why", skip.why}});
  return json;
}

Status write_results(const std::string& path, const Json& json) {
  return write_whole(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Status write_whole(const std::string& path, const std::string& text) {
  std::error_code none;
  const bool is_special =
      std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none);
  const std::string part = is_special ? path : path + ".part";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(part.c_str(), "w"), &std::fclose);
  if (file == nullptr) return system_error("cannot write '" + part + "'", errno);
  const bool wrote = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fclose(file.release()) != 0 || !wrote ||
      (!is_special && std::rename(part.c_str(), path.c_str()) != 0)) {
    const int why = errno;
    if (!is_special) (void)std::remove(part.c_str());
    return system_error("cannot write '" + path + "'", why);
  }
  return {};
}

Status check_writable(const std::string& option, const std::string& path) {
  if (path.empty()) return {};
  std::error_code none;
  if (std::filesystem::is_directory(path, none))
    return Status(StatusCode::kInvalidArgument, option + ": '" + path + "' is a folder");
  if (std::filesystem::exists(path, none) && ::access(path.c_str(), W_OK) != 0)
    return system_error(option + ": cannot write '" + path + "'", errno);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) != 0)
    return system_error(option + ": cannot write into '" + (folder.empty() ? "." : folder) + "'",
                        errno);
  return {};
}

Result<Json> read_results(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error("cannot read '" + path + "'", errno);
  std::string text;
  std::vector<char> part(64 << 10);
  while (text.size() <= kLargestFile) {
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    if (file.gcount() <= 0) break;
    text.append(part.data(), static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) return system_error("cannot read '" + path + "'", errno);
  const auto wrong = [&](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "'" + path + "': " + what);
  };
  if (text.size() > kLargestFile) return wrong("more than 64 MiB, which no results have");
  auto json = parse_json(text, "'" + path + "'");
  if (!json.ok()) return json.status();
  const auto format = read_count(*json, "fargpu_bench");
  if (!format.ok())
    return wrong("this is no file of `fargpu bench --json`: " + format.status().message());
  if (*format != kFormat) {
    return wrong("format " + std::to_string(*format) + ", but this fargpu reads " +
                 std::to_string(kFormat) + ": measure again");
  }
  if (!member(*json, "results").is_array()) return wrong("'results' is not a list");
  return json;
}

}  // namespace fargpu::bench
