#include "client/bench/page/report_page.h"

#include "client/bench/page/page.h"

namespace fargpu::bench {

extern const std::string_view kReportPage;  // report_page_text.cc

std::string make_page(const Json& results, const Json& changes) {
  Json data{{"results", results}};
  if (!changes.is_null()) data["changes"] = changes;
  return fill_page(kReportPage, data);
}

}  // namespace fargpu::bench
