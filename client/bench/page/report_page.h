// Results as a page for people: one HTML file that needs no other and no network. Pure functions.
#pragma once

#include <string>

#include "client/bench/figures/json.h"

namespace fargpu::bench {

// `results`: as read_results() gives them, from whomever: their texts cannot become markup.
// `changes`: as to_json() of a Comparison gives them; null: without.
std::string make_page(const Json& results, const Json& changes);

}  // namespace fargpu::bench
