#include "common/pages/late_words.h"

#include <algorithm>

namespace fargpu::pages {
namespace {

uint64_t line_of(uint64_t address) { return address / LateWords::kLine; }

}  // namespace

std::span<const LateWords::Part> LateWords::in_order(std::span<const std::byte> runs) {
  std::sort(parts_.begin(), parts_.end(),
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  size_t count = 0;
  for (const Part& part : parts_) {
    if (count != 0 && part.begin < parts_[count - 1].end)
      parts_[count - 1].end = std::max(parts_[count - 1].end, part.end);
    else
      parts_[count++] = part;
  }
  parts_.resize(count);
  std::vector<Part> lines;  // of the runs, the first one and the last one
  RunReader reader(runs);
  while (const auto run = reader.next())
    lines.push_back({line_of(run->address), line_of(run->address + run->data.size() - 1)});
  std::sort(lines.begin(), lines.end(), [](const Part& a, const Part& b) { return a.end < b.end; });
  std::vector<Part> alone;
  size_t others = 0;
  for (size_t first = 0, end = 0; first < count; first = end) {
    const uint64_t line = line_of(parts_[first].begin);
    while (end < count && line_of(parts_[end].begin) == line) ++end;
    const auto run = std::partition_point(lines.begin(), lines.end(),
                                          [line](const Part& one) { return one.end < line; });
    const bool has_company = parts_[first].begin / kWord != parts_[end - 1].begin / kWord ||
                             (run != lines.end() && run->begin <= line);
    for (size_t at = first; at < end; ++at) {
      if (has_company)
        parts_[others++] = parts_[at];
      else
        alone.push_back(parts_[at]);
    }
  }
  std::copy(alone.begin(), alone.end(), parts_.begin() + static_cast<ptrdiff_t>(others));
  return parts_;
}

}  // namespace fargpu::pages
