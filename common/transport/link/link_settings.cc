#include "common/transport/link/link_settings.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <optional>
#include <span>

namespace fargpu::transport {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array kTimes{Unit{"ns", 1.0}, Unit{"us", 1e3}, Unit{"ms", 1e6}, Unit{"s", 1e9}};
constexpr std::array kRates{Unit{"bps", 1.0}, Unit{"Kbps", 1e3}, Unit{"Mbps", 1e6},
                            Unit{"Gbps", 1e9}, Unit{"Tbps", 1e12}};
constexpr double kLongestTime = 10e9, kSlowest = 1e3, kFastest = 1e14;

// A number and one of the units behind it.
std::optional<double> quantity(std::string_view text, std::span<const Unit> units) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !(value >= 0)) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  for (const Unit& unit : units) {
    if (text == unit.name) return value * unit.factor;
  }
  return std::nullopt;
}

// With the largest unit that leaves at least 1.
std::string in_words(double value, std::span<const Unit> units) {
  const Unit* best = &units.front();
  for (const Unit& unit : units) {
    if (value >= unit.factor) best = &unit;
  }
  return fmt::format("{:g}{}", value / best->factor, best->name);
}

Status bad(std::string_view part, std::string_view why) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("'{}': {}; expected something like rtt=20us,bandwidth=100Gbps",
                            part.substr(0, 100), why));
}

Status set_part(std::string_view part, LinkSettings& settings) {
  const size_t equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  if (equals == std::string_view::npos ||
      (name != "rtt" && name != "bandwidth" && name != "jitter")) {
    return bad(part, "neither rtt=, bandwidth= nor jitter=");
  }
  const std::string_view value = part.substr(equals + 1);
  if (name != "bandwidth") {
    const auto time = quantity(value, kTimes);
    if (!time) return bad(part, "not a number with ns, us, ms or s");
    if (*time > kLongestTime) return bad(part, "longer than 10s");
    (name == "rtt" ? settings.rtt : settings.jitter) =
        std::chrono::nanoseconds(static_cast<int64_t>(*time));
    return Status();
  }
  const auto rate = quantity(value, kRates);
  if (!rate) return bad(part, "not a number with bps, Kbps, Mbps, Gbps or Tbps (bits per second)");
  if (*rate < kSlowest || *rate > kFastest) return bad(part, "not between 1Kbps and 100Tbps");
  settings.bits_per_second = *rate;
  return Status();
}

}  // namespace

Result<LinkSettings> parse_link(std::string_view text) {
  LinkSettings settings;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    more = comma != std::string_view::npos;
    FARGPU_RETURN_IF_ERROR(set_part(text.substr(0, comma), settings));
    if (more) text.remove_prefix(comma + 1);
  }
  return settings;
}

std::string LinkSettings::to_string() const {
  std::string text = "rtt=" + in_words(static_cast<double>(rtt.count()), kTimes);
  if (bits_per_second > 0) text += " bandwidth=" + in_words(bits_per_second, kRates);
  if (jitter.count() > 0)
    text += " jitter=" + in_words(static_cast<double>(jitter.count()), kTimes);
  return text;
}

}  // namespace fargpu::transport
