// Tensor maps. What a driver makes of a tensor's shape and address depends on nothing else, so it
// is asked once for each: programs make the maps of their kernels anew for every launch.
#include "generated/client/wire/tensor_map.h"

#include <array>
#include <cstring>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "client/manual/common.h"

namespace fargpu::client {
namespace {

constexpr unsigned kMostRank = 5;

// All that is given for a tiled map, and the context. Without padding.
struct Tiled {
  uint64_t context = 0;  // its unique id
  uint64_t address = 0;
  std::array<uint64_t, kMostRank> sizes{};
  std::array<uint64_t, kMostRank - 1> strides{};
  std::array<uint32_t, kMostRank> box{}, steps{};
  std::array<int32_t, 6> kinds{};
  bool operator==(const Tiled&) const = default;
};
static_assert(std::has_unique_object_representations_v<Tiled>);

struct HashOfTiled {
  size_t operator()(const Tiled& tiled) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&tiled), sizeof tiled});
  }
};

class KnownMaps {
 public:
  bool find(const Tiled& tiled, CUtensorMap* map) {
    const std::lock_guard lock(mutex_);
    const auto found = maps_.find(tiled);
    if (found == maps_.end()) return false;
    *map = found->second;
    return true;
  }
  void add(const Tiled& tiled, const CUtensorMap& map) {
    constexpr size_t kMost = 4096;
    const std::lock_guard lock(mutex_);
    if (maps_.size() >= kMost) maps_.clear();
    maps_.emplace(tiled, map);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Tiled, CUtensorMap, HashOfTiled> maps_;
};

}  // namespace

CUresult manual_cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                       cuuint32_t tensorRank, void* globalAddress,
                                       const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                       const cuuint32_t* boxDim, const cuuint32_t* elementStrides,
                                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion l2Promotion,
                                       CUtensorMapFloatOOBfill oobFill) {
  static auto& known = *new KnownMaps;
  const CallTarget target = CallTarget::of_current();
  Tiled tiled;
  const bool complete = tensorMap != nullptr && globalDim != nullptr && boxDim != nullptr &&
                        elementStrides != nullptr && tensorRank > 0 && tensorRank <= kMostRank &&
                        (globalStrides != nullptr || tensorRank == 1);
  if (complete) {
    tiled.context = current_context()->unique_id.load();
    tiled.address = reinterpret_cast<uint64_t>(globalAddress);
    std::memcpy(tiled.sizes.data(), globalDim, tensorRank * sizeof *globalDim);
    if (tensorRank > 1)
      std::memcpy(tiled.strides.data(), globalStrides, (tensorRank - 1) * sizeof *globalStrides);
    std::memcpy(tiled.box.data(), boxDim, tensorRank * sizeof *boxDim);
    std::memcpy(tiled.steps.data(), elementStrides, tensorRank * sizeof *elementStrides);
    tiled.kinds = {tensorDataType, static_cast<int32_t>(tensorRank),
                   interleave,     swizzle,
                   l2Promotion,    oobFill};
    if (known.find(tiled, tensorMap)) return CUDA_SUCCESS;
  }
  const CUresult result = wire::cuTensorMapEncodeTiled(
      target.session, target.context, tensorMap, tensorDataType, tensorRank, globalAddress,
      globalDim, globalStrides, boxDim, elementStrides, interleave, swizzle, l2Promotion, oobFill);
  if (complete && result == CUDA_SUCCESS) known.add(tiled, *tensorMap);
  return result;
}

}  // namespace fargpu::client
