#include "common/base/printable.h"

#include <algorithm>
#include <cstdint>

namespace fargpu {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: this is not UTF-8
};

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The first one of `text`, which is not empty.
Character first_of(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (!continues(text[i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[bytes] || code > 0x10FFFF || surrogate) return {};
  return {code, bytes};
}

bool is_shown(uint32_t code) {
  const bool control = code < 0x20 || (code >= 0x7F && code <= 0x9F);
  const bool direction = code == 0x61C || code == 0x200E || code == 0x200F ||
                         (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  const bool line_end = code == 0x2028 || code == 0x2029;
  return !control && !direction && !line_end && code != 0xFEFF;
}

}  // namespace

std::string printable_line(std::string_view text, size_t limit) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  result.reserve(std::min(text.size(), limit));
  while (!text.empty()) {
    const Character next = first_of(text);
    const bool shown = next.bytes != 0 && is_shown(next.code);
    const size_t bytes = std::max<size_t>(next.bytes, 1);
    if (result.size() + (shown ? bytes : 4 * bytes) > limit) break;
    for (const char byte : text.substr(0, bytes)) {
      const auto value = static_cast<unsigned char>(byte);
      if (shown) {
        result += byte;
      } else {
        result += {'\\', 'x', kDigits[value >> 4], kDigits[value & 15]};
      }
    }
    text.remove_prefix(bytes);
  }
  return result;
}

std::string printable(std::string_view text, size_t limit) {
  std::string result = printable_line(text, limit);
  std::replace(result.begin(), result.end(), '"', '\'');
  return result;
}

}  // namespace fargpu
