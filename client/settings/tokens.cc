#include "client/settings/tokens.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace fargpu::client {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Takes the first one from `text`.
template <typename Ends>
std::string_view take(std::string_view& text, Ends ends) {
  const size_t end = text.find_first_of(ends);
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end == text.npos ? text.size() : end + 1);
  return taken;
}
std::string_view take_line(std::string_view& text) { return trim(take(text, '\n')); }
std::string_view take_word(std::string_view& line) {
  const std::string_view word = take(line, kBlanks);
  line = trim(line);
  return word;
}

bool is_line_of_server(std::string_view line) {
  return take_word(line) == "server" && !line.empty();
}

bool is_same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char one, unsigned char other) {
    return std::tolower(one) == std::tolower(other);
  });
}

bool is_meant(const bootstrap::ServerAddress& named, const bootstrap::ServerAddress& server) {
  if (named.tls && !server.tls) return false;
  const auto* const one = std::get_if<Endpoint>(&named.where);
  const auto* const other = std::get_if<Endpoint>(&server.where);
  if (one == nullptr || other == nullptr) return named.where == server.where;
  return one->port == other->port && is_same_word(one->host, other->host);
}

bool has_byte_order_mark(std::string_view text) {
  return text.starts_with("\xef\xbb\xbf") || text.starts_with("\xff\xfe") ||
         text.starts_with("\xfe\xff");
}

Status wrong(std::string what) { return {StatusCode::kInvalidArgument, std::move(what)}; }

}  // namespace

Result<Tokens::Line> Tokens::parse_line(std::string_view line) {
  if (take_word(line) != "server") return wrong("each line must be \"server HOST:PORT TOKEN\"");
  const std::string name(take_word(line));
  if (line.empty()) return wrong(fmt::format("there is no token behind \"server {}\"", name));
  Line parsed{std::nullopt, std::string(line)};
  if (name == "*") return parsed;
  FARGPU_ASSIGN_OR_RETURN(parsed.server, bootstrap::parse_server(name));
  return parsed;
}

Result<Tokens> Tokens::parse(std::string_view text, size_t servers) {
  if (has_byte_order_mark(text)) return wrong("it begins with a byte order mark; save it without");
  std::vector<std::string_view> lines;
  while (!text.empty()) lines.push_back(take_line(text));
  Tokens tokens;
  if (std::ranges::none_of(lines, is_line_of_server)) {
    if (lines.empty() || lines.front().empty()) return wrong("there is no token");
    // It may have been meant for another server.
    std::string_view rest = lines.front();
    if (rest.starts_with('#') || is_same_word(take_word(rest), "server")) {
      return wrong(
          "the first line is no token, and no line is \"server HOST:PORT TOKEN\", with server in "
          "small letters");
    }
    if (servers > 1) {
      return wrong(
          "there is one token and several servers: write a line \"server HOST:PORT TOKEN\" for "
          "each, or \"server * TOKEN\" if it is the token of all");
    }
    tokens.lines_.push_back({std::nullopt, std::string(lines.front())});
    return tokens;
  }
  for (const std::string_view line : lines) {
    if (line.empty() || line.starts_with('#')) continue;
    FARGPU_ASSIGN_OR_RETURN(Line parsed, parse_line(line));
    tokens.lines_.push_back(std::move(parsed));
  }
  return tokens;
}

const std::string& Tokens::of(const bootstrap::ServerAddress& server) const {
  static const std::string none;
  const std::string* for_all = &none;
  for (const Line& line : lines_) {
    if (!line.server) for_all = &line.token;
    if (line.server && is_meant(*line.server, server)) return line.token;
  }
  return *for_all;
}

std::string Tokens::why_none(const bootstrap::ServerAddress& server) const {
  if (lines_.empty() || !of(server).empty()) return "";
  return "no line of FARGPU_TOKEN or FARGPU_TOKEN_FILE is for server " + server.to_string();
}

}  // namespace fargpu::client
