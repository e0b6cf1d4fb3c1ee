// The page of `fargpu bench --report` without results: page.html with its style and script.
#pragma once

#include <string_view>

namespace fargpu::bench {

// Stands once in kPageText: where the results go.
inline constexpr std::string_view kResultsPlace = "{{results}}";
extern const std::string_view kPageText;

}  // namespace fargpu::bench
