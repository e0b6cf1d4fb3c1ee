// ParameterLayouts: where the parameters of a kernel lie in its packed buffer, by the id of the
// function or kernel. One thread (the executor's).
//
// A launch hands the driver one pointer per parameter, as programs do; the packed buffer as a whole
// is the way out where no layout is known.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fargpu::server {

struct ParameterLayout {
  std::vector<unsigned> offsets, sizes;  // bytes, one of each per parameter
};

class ParameterLayouts {
 public:
  void learn(uint64_t function, ParameterLayout layout) { layouts_[function] = std::move(layout); }
  void forget(uint64_t function) { layouts_.erase(function); }
  // nullptr: not known.
  const ParameterLayout* find(uint64_t function) const {
    const auto found = layouts_.find(function);
    return found == layouts_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<uint64_t, ParameterLayout> layouts_;
};

}  // namespace fargpu::server
