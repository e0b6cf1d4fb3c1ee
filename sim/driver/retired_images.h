// Texture and surface objects that the program has destroyed while kernels that use them are still
// queued: destroying one waits for nothing, and a kernel that was launched before still reads it.
// Thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "sim/base/completion.h"
#include "sim/image/image.h"

namespace fargpu::sim {

class RetiredImages {
 public:
  // Keeps the image of an object's value until all of `work` is done. Without work nothing is kept.
  void keep(uint64_t value, std::shared_ptr<const Texture> texture, std::vector<Fence> work);
  void keep(uint64_t value, std::shared_ptr<const Surface> surface, std::vector<Fence> work);
  // Null: no such object, or all kernels that may use it are done.
  std::shared_ptr<const Texture> texture(uint64_t value) const;
  std::shared_ptr<const Surface> surface(uint64_t value) const;

 private:
  struct Image {
    std::shared_ptr<const Texture> texture;  // one of the two
    std::shared_ptr<const Surface> surface;
    std::vector<Fence> work;
  };
  void keep(uint64_t value, Image image);

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Image> images_;  // guarded by mutex_
};

}  // namespace fargpu::sim
