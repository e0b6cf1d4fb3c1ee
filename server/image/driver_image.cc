#include "server/image/driver_image.h"

#include <utility>

#include "common/base/log.h"
#include "common/fatbin/fatbin.h"

namespace fargpu::server {

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
  wrapper_ = {kWrapperMagic, FatbinWrapper::kWithPrelinked, prelinked_.front(),
              prelinked_.data() + 1};
  data_ = &wrapper_;
}

}  // namespace fargpu::server
