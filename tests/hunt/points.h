// Points in time, made in an order in which edges only lead forward, each with the set of those
// before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fargpu::hunt {

class Points {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  size_t add() {
    before_.emplace_back();
    return before_.size() - 1;
  }
  // A new point behind another one.
  size_t add_after(size_t from) {
    const size_t point = add();
    edge(from, point);
    return point;
  }
  // `to` leads nowhere yet.
  void edge(size_t from, size_t to) {
    if (is_before(from, to)) return;
    std::vector<uint64_t>& bits = before_[to];
    const std::vector<uint64_t>& more = before_[from];
    if (bits.size() < from / 64 + 1) bits.resize(from / 64 + 1);
    for (size_t i = 0; i < more.size(); ++i) bits[i] |= more[i];
    bits[from / 64] |= uint64_t{1} << (from % 64);
  }
  bool is_before(size_t a, size_t b) const {
    const std::vector<uint64_t>& bits = before_[b];
    return a / 64 < bits.size() && (bits[a / 64] >> (a % 64) & 1) != 0;
  }

 private:
  std::vector<std::vector<uint64_t>> before_;
};

}  // namespace fargpu::hunt
