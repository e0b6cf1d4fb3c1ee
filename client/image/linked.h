// Links that are being made (CUlinkState), and the images that cuLinkComplete returned.
//
// Only the driver knows the format of a linked image. The application passes the image back as a
// bare pointer, so its length must be remembered here. Any thread.
#pragma once

#include <cuda.h>

#include <mutex>
#include <span>
#include <vector>

#include "client/image/load.h"
#include "client/object/object.h"

namespace fargpu::client {

struct LinkRecord final : Object {
  std::mutex mutex;  // all members; held during calls, as a link serves one thread at a time
  JitOptions jit;
  std::vector<std::byte> image;  // what cuLinkComplete gave, valid until cuLinkDestroy
};

// The bytes of the image that begins at `image`, when a live link gave it out; else empty.
std::span<const std::byte> linked_image(Session& session, const void* image);

}  // namespace fargpu::client
