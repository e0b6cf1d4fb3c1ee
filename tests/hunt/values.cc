#include "tests/hunt/values.h"

#include <algorithm>
#include <map>

namespace fargpu::hunt {
namespace {

struct Part {
  size_t access, index;  // index: which segment of the access
};

class Values {
 public:
  Values(const std::vector<Access>& accesses, const Points& points)
      : accesses_(accesses), points_(points), seen_(accesses.size()), sources_(accesses.size()) {}

  // What a copy writes depends on what it reads, and that on writes in turn: sets grow until
  // nothing changes.
  Seen run() {
    for (size_t i = 0; i < accesses_.size(); ++i) {
      const Place& to = accesses_[i].to;
      for (size_t k = 0; to.buffer >= 0 && k < to.count; ++k)
        writes_[{to.buffer, to.segment + k * to.stride}].push_back({i, k});
    }
    for (size_t i = 0; i < accesses_.size(); ++i) find_sources(i);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < accesses_.size(); ++i) {
        for (size_t k = 0; k < sources_[i].size(); ++k) changed |= grow(i, k);
      }
    }
    return std::move(seen_);
  }

 private:
  void find_sources(size_t reader) {
    static const std::vector<Part> kNothing;
    const Access& access = accesses_[reader];
    if (access.from.buffer < 0) return;
    seen_[reader].resize(access.from.count);
    sources_[reader].resize(access.from.count);
    for (size_t k = 0; k < access.from.count; ++k) {
      const auto found =
          writes_.find({access.from.buffer, access.from.segment + k * access.from.stride});
      const std::vector<Part>& all = found == writes_.end() ? kNothing : found->second;
      bool overwritten = false;  // the zeros of the beginning
      for (const Part& part : all) {
        const size_t point = accesses_[part.access].write;
        if (part.access == reader || points_.is_before(access.read, point)) continue;
        overwritten |= points_.is_before(point, access.read);
        // Of many writes one of the last usually hides the others.
        const bool hidden = std::any_of(all.rbegin(), all.rend(), [&](const Part& other) {
          const size_t between = accesses_[other.access].write;
          return points_.is_before(point, between) && points_.is_before(between, access.read);
        });
        if (!hidden) sources_[reader][k].push_back(part);
      }
      if (!overwritten) seen_[reader][k].insert(0);
    }
  }

  bool grow(size_t reader, size_t k) {
    std::set<uint32_t>& seen = seen_[reader][k];
    const size_t before = seen.size();
    for (const Part& part : sources_[reader][k]) {
      const Access& writer = accesses_[part.access];
      if (writer.from.buffer < 0)
        seen.insert(writer.value);
      else
        seen.insert(seen_[part.access][part.index].begin(), seen_[part.access][part.index].end());
    }
    return seen.size() != before;
  }

  const std::vector<Access>& accesses_;
  const Points& points_;
  std::map<std::pair<int, size_t>, std::vector<Part>> writes_;  // by buffer and segment
  Seen seen_;
  std::vector<std::vector<std::vector<Part>>> sources_;  // whose values each segment may have
};

}  // namespace

Seen values_seen(const std::vector<Access>& accesses, const Points& points) {
  return Values(accesses, points).run();
}

}  // namespace fargpu::hunt
