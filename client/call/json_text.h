// Text as JSON has it.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace fargpu::client {

// Between quotes, in ASCII: any other byte becomes the character of its number. `out`: a
// std::string or a buffer of fmt.
template <typename Buffer>
void append_json_text(Buffer& out, std::string_view text) {
  out.push_back('"');
  for (const char one : text) {
    const auto code = static_cast<unsigned char>(one);
    if (one == '"' || one == '\\') {
      out.push_back('\\');
      out.push_back(one);
    } else if (code < 0x20 || code >= 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
    } else {
      out.push_back(one);
    }
  }
  out.push_back('"');
}

}  // namespace fargpu::client
