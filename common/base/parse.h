// Texts from flags, configuration files and the environment, as values. Every error names the text
// and shows a right one. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace fargpu {

inline constexpr uint16_t kDefaultPort = 14900;

// Where a daemon listens.
struct Endpoint {
  std::string host;  // name or address; IPv6 without brackets
  uint16_t port = kDefaultPort;
  // "host:14900", "[::1]:14900": parse_endpoint reads it back.
  std::string to_string() const;
  bool operator==(const Endpoint&) const = default;
};

// Decimal, without sign, blanks or anything else around it.
Result<uint64_t> parse_integer(std::string_view text);
// "123", "64K", "512M", "8G", "1.5G", "2T", also "8GiB" and "8GB"; all powers of 1024. Letters in
// either case.
Result<uint64_t> parse_bytes(std::string_view text);
// "250us", "500ms", "5s", "2m", "1h"; a number alone is seconds.
Result<std::chrono::microseconds> parse_duration(std::string_view text);
// "host", "host:14900", "10.0.0.1:14900", "::1", "[::1]", "[::1]:14900". Without a port:
// kDefaultPort. lowest_port 0: for listening, where port 0 means one that the system chooses.
Result<Endpoint> parse_endpoint(std::string_view text, uint16_t lowest_port = 1);
// "1", "true", "yes", "on" and their contraries, in either case.
Result<bool> parse_bool(std::string_view text);
// 8589934592 -> "8.0 GiB", for people.
std::string format_bytes(uint64_t bytes);

}  // namespace fargpu
