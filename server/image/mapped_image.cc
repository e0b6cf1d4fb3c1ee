#include "server/image/mapped_image.h"

#include <sys/mman.h>

#include <cerrno>
#include <span>

#include "common/base/address_check.h"
#include "common/host/memory_page.h"

namespace fargpu::server {
namespace {

// Behind the NUL, up to the end of its page.
std::span<const std::byte> bytes_behind(const void* memory, size_t size) {
  return {static_cast<const std::byte*>(memory) + size + 1, kPageBytes - 1 - size % kPageBytes};
}

}  // namespace

Result<Image> Image::map(std::shared_ptr<const Fd> file, size_t size) {
  const int descriptor = file->get();
  // Zeros first, one more than the file has: where it ends with a page, the NUL is in the next.
  void* const memory = ::mmap(nullptr, size + 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error("no room to map an image", errno);
  Image image(memory, size, std::move(file));
  if (::mmap(memory, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor, 0) == MAP_FAILED)
    return system_error("cannot map an image", errno);
  const auto behind = bytes_behind(memory, size);
  address_check::poison(behind.data(), behind.data() + behind.size());
  return image;
}

Image::~Image() {
  if (memory_ == nullptr) return;
  const auto behind = bytes_behind(memory_, size_);
  address_check::unpoison(behind.data(), behind.data() + behind.size());
  ::munmap(memory_, size_ + 1);
}

}  // namespace fargpu::server
