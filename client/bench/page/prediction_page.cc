#include "client/bench/page/prediction_page.h"

#include "client/bench/page/page.h"

namespace fargpu::bench {

extern const std::string_view kPredictionPage;  // prediction_page_text.cc

std::string make_prediction_page(const Json& prediction) {
  return fill_page(kPredictionPage, {{"results", prediction}});
}

}  // namespace fargpu::bench
