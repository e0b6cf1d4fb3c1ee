#include "sim/driver/retired_images.h"

#include <algorithm>
#include <utility>

namespace fargpu::sim {

void RetiredImages::keep(uint64_t value, std::shared_ptr<const Texture> texture,
                         std::vector<Fence> work) {
  keep(value, Image{std::move(texture), nullptr, std::move(work)});
}

void RetiredImages::keep(uint64_t value, std::shared_ptr<const Surface> surface,
                         std::vector<Fence> work) {
  keep(value, Image{nullptr, std::move(surface), std::move(work)});
}

void RetiredImages::keep(uint64_t value, Image image) {
  std::vector<Image> done;  // arrays may end with them: outside of the lock
  std::lock_guard lock(mutex_);
  for (auto it = images_.begin(); it != images_.end();) {
    if (std::ranges::any_of(it->second.work, pending)) {
      ++it;
      continue;
    }
    done.push_back(std::move(it->second));
    it = images_.erase(it);
  }
  if (!image.work.empty()) images_.emplace(value, std::move(image));
}

std::shared_ptr<const Texture> RetiredImages::texture(uint64_t value) const {
  std::lock_guard lock(mutex_);
  const auto found = images_.find(value);
  return found == images_.end() ? nullptr : found->second.texture;
}

std::shared_ptr<const Surface> RetiredImages::surface(uint64_t value) const {
  std::lock_guard lock(mutex_);
  const auto found = images_.find(value);
  return found == images_.end() ? nullptr : found->second.surface;
}

}  // namespace fargpu::sim
