#include "client/image/launch_attributes.h"

#include <algorithm>
#include <cstring>

namespace fargpu::client {
namespace {

class Hash {
 public:
  void add(uint64_t value) {
    state_ = (state_ ^ value) * 0x9E3779B97F4A7C15u;
    state_ ^= state_ >> 29;
  }
  void add(const CUlaunchAttributeValue& value) {
    uint64_t words[sizeof value / sizeof(uint64_t)];
    std::memcpy(words, &value, sizeof words);
    for (const uint64_t word : words) add(word);
  }
  uint64_t value() const { return state_ | 1; }

 private:
  uint64_t state_ = 0xCBF29CE484222325u;
};

bool is_whole(unsigned grid, unsigned cluster) { return cluster != 0 && grid % cluster == 0; }

}  // namespace

uint64_t attributes_key(std::span<const CUlaunchAttribute> attributes, const LaunchShape& shape,
                        const Context& context) {
  Hash hash;
  hash.add(context.unique_id.load(std::memory_order_relaxed));
  for (const unsigned size : shape.block) hash.add(size);
  hash.add(shape.shared_bytes);
  for (const CUlaunchAttribute& attribute : attributes) {
    CUlaunchAttributeValue value = attribute.value;
    hash.add(static_cast<uint64_t>(attribute.id));
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        value.programmaticEvent.event = nullptr;
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        value.launchCompletionEvent.event = nullptr;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        hash.add(is_whole(shape.grid[0], value.clusterDim.x));
        hash.add(is_whole(shape.grid[1], value.clusterDim.y));
        hash.add(is_whole(shape.grid[2], value.clusterDim.z));
        break;
      default:
        break;
    }
    hash.add(value);
  }
  return hash.value();
}

bool admitted_before(Function& function, uint64_t key) {
  std::lock_guard lock(function.mutex);
  return std::find(function.admitted.begin(), function.admitted.end(), key) !=
         function.admitted.end();
}

void remember_admitted(Function& function, uint64_t key) {
  std::lock_guard lock(function.mutex);
  function.admitted[function.next_admitted++ % function.admitted.size()] = key;
}

}  // namespace fargpu::client
