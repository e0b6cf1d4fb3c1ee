#include "client/bench/page/page.h"

namespace fargpu::bench {

namespace {

// Stands once in a page: where the data go.
constexpr std::string_view kPlace = "{{results}}";

// As the text of a <script>: pure ASCII, and without '<', so that nothing in it ends the element or
// begins a comment. In JSON '<' stands in texts only.
std::string to_script(const Json& json) {
  std::string text;
  for (const char one : json.dump(-1, ' ', true, Json::error_handler_t::replace)) {
    if (one == '<') {
      text += "\\u003c";
    } else {
      text += one;
    }
  }
  return text;
}

}  // namespace

std::string fill_page(std::string_view page, const Json& data) {
  const size_t place = page.find(kPlace);
  std::string filled(page.substr(0, place));
  filled += to_script(data);
  filled += page.substr(place + kPlace.size());
  return filled;
}

}  // namespace fargpu::bench
