#include "common/base/parse.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace fargpu {
namespace {

Status bad(std::string_view text, std::string_view expected) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("'{}' is not valid: expected {}", text.substr(0, 200), expected));
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return result;
}

// A decimal number with an optional fraction; moves `text` behind it.
std::optional<double> take_number(std::string_view& text) {
  double value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !(value >= 0)) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool is_ipv6(std::string_view text) {
  in6_addr address;
  return ::inet_pton(AF_INET6, std::string(text).c_str(), &address) == 1;
}

std::optional<uint16_t> port_number(std::string_view text, uint16_t lowest) {
  auto value = parse_integer(text);
  if (!value || *value < lowest || *value > 65535) return std::nullopt;
  return static_cast<uint16_t>(*value);
}

}  // namespace

std::string Endpoint::to_string() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<uint64_t> parse_integer(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return bad(text, "a whole number such as 4096");
  }
  return value;
}

Result<uint64_t> parse_bytes(std::string_view text) {
  static constexpr std::string_view kExpected = "a size such as 512M, 8G or 1073741824";
  std::string_view rest = text;
  auto number = take_number(rest);
  if (!number) return bad(text, kExpected);
  std::string unit = lower(rest);
  int shift = 0;
  if (!unit.empty() && unit != "b") {
    const size_t power = std::string_view("kmgtp").find(unit[0]);
    const std::string_view suffix = std::string_view(unit).substr(1);
    if (power == std::string_view::npos || (!suffix.empty() && suffix != "b" && suffix != "ib")) {
      return bad(text, kExpected);
    }
    shift = 10 * (static_cast<int>(power) + 1);
  }
  // Whole numbers keep all 64 bits; only fractions go through a double.
  const std::string_view digits = text.substr(0, text.size() - rest.size());
  if (auto whole = parse_integer(digits); whole.ok()) {
    if (*whole > (UINT64_MAX >> shift)) return bad(text, "less than 16 EiB");
    return *whole << shift;
  }
  const double bytes = std::ldexp(*number, shift);
  if (!(bytes < 9.0e18)) return bad(text, "less than 8 EiB");
  return static_cast<uint64_t>(bytes);
}

Result<std::chrono::microseconds> parse_duration(std::string_view text) {
  static constexpr std::string_view kExpected = "a time such as 500ms, 30s or 5m";
  std::string_view rest = text;
  auto number = take_number(rest);
  if (!number) return bad(text, kExpected);
  double unit = 1e6;
  if (rest == "us")
    unit = 1;
  else if (rest == "ms")
    unit = 1e3;
  else if (rest == "s" || rest.empty())
    unit = 1e6;
  else if (rest == "m" || rest == "min")
    unit = 60e6;
  else if (rest == "h")
    unit = 3600e6;
  else
    return bad(text, kExpected);
  const double microseconds = *number * unit;
  if (!(microseconds < 1e15)) return bad(text, "less than 30 years");
  return std::chrono::microseconds(static_cast<int64_t>(std::llround(microseconds)));
}

Result<Endpoint> parse_endpoint(std::string_view text, uint16_t lowest_port) {
  const std::string_view kExpected = lowest_port > 0
                                         ? "host, host:port or [address]:port, port 1 to 65535"
                                         : "host, host:port or [address]:port, port 0 to 65535";
  Endpoint endpoint;
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text[0] == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return bad(text, kExpected);
    endpoint.host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty()) {
      if (rest[0] != ':') return bad(text, kExpected);
      port = rest.substr(1);
      has_port = true;
    }
  } else {
    const size_t colon = text.find(':');
    const bool bare_ipv6 = colon != std::string_view::npos && text.rfind(':') != colon;
    if (bare_ipv6 && !is_ipv6(text.substr(0, text.find('%')))) return bad(text, kExpected);
    if (colon == std::string_view::npos || bare_ipv6) {
      endpoint.host = text;
    } else {
      endpoint.host = text.substr(0, colon);
      port = text.substr(colon + 1);
      has_port = true;
    }
  }
  const bool printable = std::all_of(endpoint.host.begin(), endpoint.host.end(),
                                     [](unsigned char c) { return c > ' ' && c < 127; });
  if (endpoint.host.empty() || endpoint.host.size() > 255 || !printable)
    return bad(text, kExpected);
  if (has_port) {
    auto number = port_number(port, lowest_port);
    if (!number) return bad(text, kExpected);
    endpoint.port = *number;
  }
  return endpoint;
}

Result<bool> parse_bool(std::string_view text) {
  const std::string value = lower(text);
  if (value == "1" || value == "true" || value == "yes" || value == "on") return true;
  if (value == "0" || value == "false" || value == "no" || value == "off") return false;
  return bad(text, "1, true, yes, on or 0, false, no, off");
}

std::string format_bytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace fargpu
