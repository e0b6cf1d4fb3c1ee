#include "server/image/mapped_image.h"

#include <sys/mman.h>

#include <cerrno>

namespace fargpu::server {

Result<Image> Image::map(std::shared_ptr<const Fd> file, size_t size) {
  const int descriptor = file->get();
  // Zeros first, one more than the file has: where it ends with a page, the NUL is in the next.
  void* const memory = ::mmap(nullptr, size + 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error("no room to map an image", errno);
  Image image(memory, size, std::move(file));
  if (::mmap(memory, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor, 0) == MAP_FAILED)
    return system_error("cannot map an image", errno);
  return image;
}

Image::~Image() {
  if (memory_ != nullptr) ::munmap(memory_, size_ + 1);
}

}  // namespace fargpu::server
