#include "client/bench/report/page.h"

#include "client/bench/report/page_text.h"

namespace fargpu::bench {

namespace {

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

std::string make_page(const Json& results, const Json& changes) {
  Json data{{"results", results}};
  if (!changes.is_null()) data["changes"] = changes;
  const size_t place = kPageText.find(kResultsPlace);
  std::string page(kPageText.substr(0, place));
  page += to_script(data);
  page += kPageText.substr(place + kResultsPlace.size());
  return page;
}

}  // namespace fargpu::bench
