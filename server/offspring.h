// Offspring: which function and kernel ids came from which module or library id, so that they go together. One thread (the executor's).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fargpu::server {

class Offspring {
 public:
  void add(uint64_t parent, uint64_t child) { children_[parent].push_back(child); }
  // The children of `parent`, which is forgotten.
  std::vector<uint64_t> take(uint64_t parent) {
    const auto found = children_.find(parent);
    if (found == children_.end()) return {};
    std::vector<uint64_t> children = std::move(found->second);
    children_.erase(found);
    return children;
  }

 private:
  std::unordered_map<uint64_t, std::vector<uint64_t>> children_;
};

}  // namespace fargpu::server
