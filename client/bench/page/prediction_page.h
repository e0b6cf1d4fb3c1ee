// A prediction as a page for people: one HTML file that needs no other and no network. Pure.
#pragma once

#include <string>

#include "client/bench/figures/json.h"

namespace fargpu::bench {

// `prediction`: as to_json() of show.h gives it.
std::string make_prediction_page(const Json& prediction);

}  // namespace fargpu::bench
