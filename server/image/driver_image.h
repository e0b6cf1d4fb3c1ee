// An image in the form in which a driver takes it: its bytes, or, of a block of prelinked
// containers (common/fatbin/prelinked.h), the wrapper that points to them. The driver reads it
// while it loads. One thread at a time; stays where it is.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/fatbin/prelinked.h"
#include "server/image/mapped_image.h"

namespace fargpu::server {

class DriverImage {
 public:
  explicit DriverImage(Image image);
  DriverImage(const DriverImage&) = delete;
  DriverImage& operator=(const DriverImage&) = delete;

  // null: a damaged block.
  const void* data() const { return data_; }
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(image_.data()), image_.size()};
  }

 private:
  const Image image_;
  std::vector<const void*> prelinked_;
  FatbinWrapper wrapper_;
  const void* data_;
};

}  // namespace fargpu::server
