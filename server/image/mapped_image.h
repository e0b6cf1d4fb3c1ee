// An image as a driver gets it: the bytes of a file, mapped, with a NUL behind them
// (PTX text needs one). The file may lose its name meanwhile, but must not be written to. Any
// thread, one at a time; unmapped with the object.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::server {

class Image {
 public:
  // The first `size` bytes of the file, which has as many; more than 0. The file stays open as long
  // as the image. kSystem.
  static Result<Image> map(std::shared_ptr<const Fd> file, size_t size);
  Image(Image&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        size_(other.size_),
        file_(std::move(other.file_)) {}
  Image& operator=(Image&&) = delete;
  ~Image();

  const void* data() const { return memory_; }
  size_t size() const { return size_; }

 private:
  Image(void* memory, size_t size, std::shared_ptr<const Fd> file)
      : memory_(memory), size_(size), file_(std::move(file)) {}
  void* memory_;
  size_t size_;
  std::shared_ptr<const Fd> file_;
};

}  // namespace fargpu::server
