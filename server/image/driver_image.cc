#include "server/image/driver_image.h"

#include <utility>

#include "common/base/log.h"
#include "common/fatbin/fatbin.h"
#include "common/fatbin/prelinked.h"

namespace fargpu::server {
namespace {

constexpr uint32_t kWithPrelinked = 2;  // version of a wrapper

}  // namespace

DriverImage::DriverImage(Image image) : image_(std::move(image)), data_(image_.data()) {
  const auto containers = read_prelinked(bytes());
  if (!containers.ok()) {
    log::warn("{}", containers.status().message());
    data_ = nullptr;
    return;
  }
  if (containers->empty()) return;
  for (const auto& container : *containers) prelinked_.push_back(container.data());
  prelinked_.push_back(nullptr);
  wrapper_ = {kWrapperMagic, kWithPrelinked, prelinked_.front(), prelinked_.data() + 1};
  data_ = &wrapper_;
}

}  // namespace fargpu::server
