// Pages for people: one HTML file that needs no other and no network. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "client/bench/figures/json.h"

namespace fargpu::bench {

// `page`: a text that fargpu_page() of CMake makes. `data`: the data for its scripts; from
// whomever: its texts cannot become markup.
std::string fill_page(std::string_view page, const Json& data);

}  // namespace fargpu::bench
