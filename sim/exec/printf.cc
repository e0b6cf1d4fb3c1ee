// The text of device printf: C's conversions, with the argument sizes that the CUDA compiler
// stores.
#include <cstdio>
#include <string>

#include "sim/exec/builtins.h"

namespace fargpu::sim {
namespace {

// Formats one value with the host's snprintf, whose conversions are the same.
template <typename T>
void put(std::string& out, const std::string& spec, T value) {
  char text[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int length = std::snprintf(text, sizeof text, spec.c_str(), value);
  if (length >= static_cast<int>(sizeof text)) {
    std::string longer(static_cast<size_t>(length) + 1, '\0');
    std::snprintf(longer.data(), longer.size(), spec.c_str(), value);
#pragma GCC diagnostic pop
    longer.pop_back();
    out += longer;
  } else if (length > 0) {
    out.append(text, static_cast<size_t>(length));
  }
}

bool is_any(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

// Field widths and precisions are limited, so that a hostile format cannot ask for gigabytes.
constexpr int kWidest = 4096;

}  // namespace

int format_print(std::string_view format, PrintSource& source, std::string& out) {
  int count = 0;
  for (size_t i = 0; i < format.size();) {
    if (format[i] != '%') {
      out += format[i++];
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == '%') {
      out += '%';
      i += 2;
      continue;
    }
    const size_t start = i++;
    std::string spec = "%";
    while (i < format.size() && is_any(format[i], "-+ #0")) spec += format[i++];
    bool bad = false;
    const auto number = [&] {
      if (i < format.size() && format[i] == '*') {
        uint64_t value = 0;
        if (!source.argument(4, value)) return false;
        const auto width = static_cast<int32_t>(value);
        bad |= width > kWidest || width < -kWidest;
        spec += std::to_string(bad ? 0 : width);
        ++count;
        ++i;
        return true;
      }
      int value = 0;
      while (i < format.size() && format[i] >= '0' && format[i] <= '9') {
        value = value * 10 + (format[i] - '0');
        bad |= value > kWidest;
        value = value > kWidest ? kWidest : value;
        spec += format[i++];
      }
      return true;
    };
    if (!number()) return -1;
    if (i < format.size() && format[i] == '.') {
      spec += format[i++];
      if (!number()) return -1;
    }
    unsigned longs = 0;
    bool size_type = false;
    while (i < format.size() && is_any(format[i], "hlLzjtq")) {
      longs += format[i] == 'l' ? 1 : 0;
      size_type |= is_any(format[i], "zjtqL");
      ++i;
    }
    if (i >= format.size() || bad) {
      out.append(format.substr(start, i - start));
      continue;
    }
    const char conversion = format[i++];
    uint64_t value = 0;
    if (is_any(conversion, "diouxXc")) {
      const bool wide = conversion != 'c' && (longs > 0 || size_type);
      if (!source.argument(wide ? 8 : 4, value)) return -1;
      if (wide)
        put(out, spec + "ll" + conversion, static_cast<long long>(value));
      else
        put(out, spec + conversion, static_cast<int>(value));
    } else if (is_any(conversion, "eEfFgGaA")) {
      if (!source.argument(8, value)) return -1;
      put(out, spec + conversion, __builtin_bit_cast(double, value));
    } else if (conversion == 's') {
      std::string text;
      if (!source.argument(8, value)) return -1;
      if (value == 0)
        text = "(null)";
      else if (!source.text(value, text))
        return -1;
      put(out, spec + 's', text.c_str());
    } else if (conversion == 'p') {
      if (!source.argument(8, value)) return -1;
      put(out, spec + 'p', reinterpret_cast<void*>(value));
    } else {  // unknown: as it stands
      out.append(format.substr(start, i - start));
      continue;
    }
    ++count;
  }
  return count;
}

}  // namespace fargpu::sim
