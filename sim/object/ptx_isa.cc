#include "sim/object/ptx_isa.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "sim/object/module.h"

namespace fargpu::sim {
namespace {

constexpr int kKnown = 90;    // 9.0, that of CUDA 13.0
constexpr int kNewest = 109;  // of the next major toolkit

// 90 for 9.0; 0: the text has no version.
int isa_of(std::string_view text) {
  const size_t at = text.find(".version");
  if (at == std::string_view::npos) return 0;
  int major = 0, minor = 0;
  const std::string line(text.substr(at, 40));
  if (std::sscanf(line.c_str(), ".version %3d.%3d", &major, &minor) != 2) return 0;
  return 10 * std::clamp(major, 0, 999) + std::clamp(minor, 0, 9);
}

int newest_of(const std::vector<std::string>& texts) {
  int newest = 0;
  for (const std::string& text : texts) newest = std::max(newest, isa_of(text));
  return newest;
}

std::string comparison(int isa) {
  return fmt::format("the PTX is of ISA {}.{}, newer than {}.{}; compile with CUDA 13.0 or older",
                     isa / 10, isa % 10, kKnown / 10, kKnown % 10);
}

}  // namespace

CUresult check_isa(const std::vector<std::string>& texts, std::string* problem) {
  const int newest = newest_of(texts);
  if (newest <= kNewest) return CUDA_SUCCESS;
  *problem = comparison(newest);
  return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

CUresult refused(const LoadError& error, const std::vector<std::string>& texts,
                 std::string* problem) {
  *problem = error.message;
  const CUresult result = to_result(error.kind);
  const int newest = newest_of(texts);
  if (result != CUDA_ERROR_INVALID_PTX || newest <= kKnown) return result;
  *problem += " (" + comparison(newest) + ")";
  return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

}  // namespace fargpu::sim
