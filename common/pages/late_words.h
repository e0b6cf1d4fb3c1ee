// LateWords: changed words that may be flags, to be sent behind all other changes. A word may be
// one if nothing else in its line of 64 bytes was changed. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/pages/byte_runs.h"

namespace fargpu::pages {

class LateWords {
 public:
  static constexpr uint64_t kWord = 8, kLine = 64;
  static constexpr size_t kMost = 1u << 20;
  struct Part {  // bytes of one word
    uint64_t begin = 0, end = 0;
  };

  void reserve(size_t parts) { parts_.reserve(parts); }
  void add(uint64_t address, size_t bytes) { parts_.push_back({address, address + bytes}); }
  bool empty() const { return parts_.empty(); }
  bool full() const { return parts_.size() >= kMost; }
  size_t count() const { return parts_.size(); }
  std::span<const Part> parts() const { return parts_; }  // as they were added
  uint64_t end() const { return parts_.back().end; }      // of the last one; not empty
  void clear() { parts_.clear(); }
  void forget(uint64_t begin, uint64_t end) {
    std::erase_if(parts_, [&](const Part& part) { return part.begin >= begin && part.end <= end; });
  }

  // By address, without overlaps, if they were found in several looks. Those that share a line with
  // another one, or with any of the runs, are no flags after all and go first.
  std::span<const Part> in_order(std::span<const std::byte> runs);

 private:
  std::vector<Part> parts_;
};

}  // namespace fargpu::pages
