#include "client/bench/figures/json.h"

#include <cmath>

namespace fargpu::bench {

namespace {

constexpr int kDeepest = 32;  // ours has 6; writing it recurses

// For terminals and tables: without control characters.
std::string printable(std::string text) {
  for (char& one : text) {
    const auto code = static_cast<unsigned char>(one);
    if (code < 0x20 || code == 0x7f) one = ' ';
  }
  return text;
}

Status wrong(const char* name, const char* wanted) {
  return Status(StatusCode::kInvalidArgument, std::string("'") + name + "' is not " + wanted);
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& what) {
  bool too_deep = false;
  const auto look = [&](int depth, Json::parse_event_t, const Json&) {
    too_deep = too_deep || depth > kDeepest;
    return !too_deep;
  };
  Json json = Json::parse(text, look, false);
  if (json.is_discarded() || too_deep)
    return Status(StatusCode::kInvalidArgument, what + ": this is no JSON");
  return json;
}

const Json& member(const Json& object, const char* name) {
  static const Json kNothing;
  if (!object.is_object()) return kNothing;
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

Result<std::string> read_text(const Json& object, const char* name) {
  const Json& text = member(object, name);
  if (!text.is_string()) return wrong(name, "a text");
  return printable(text.get<std::string>());
}

Result<uint64_t> read_count(const Json& object, const char* name, uint64_t limit) {
  const Json& count = member(object, name);
  if (!count.is_number_unsigned()) return wrong(name, "a whole number");
  const auto value = count.get<uint64_t>();
  if (value > limit) return wrong(name, "a number that can be");
  return value;
}

Result<double> read_number(const Json& object, const char* name) {
  const Json& number = member(object, name);
  if (!number.is_number()) return wrong(name, "a number");
  const auto value = number.get<double>();
  if (!std::isfinite(value) || value < 0) return wrong(name, "a number that can be");
  return value;
}

std::string text_or(const Json& object, const char* name, const std::string& otherwise) {
  const Json& text = member(object, name);
  return text.is_string() ? printable(text.get<std::string>()) : otherwise;
}

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fargpu::bench
