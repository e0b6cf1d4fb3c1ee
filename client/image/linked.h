// The images that cuLinkComplete returned.
//
// Only the driver knows the format of a linked image. The application passes the image back as a
// bare pointer, so its length must be remembered here. Any thread.
#pragma once

#include <cstddef>
#include <span>

namespace fargpu::client {

class Session;

// The bytes of the image that begins at `image`, when a live link gave it out; else empty.
std::span<const std::byte> linked_image(Session& session, const void* image);

}  // namespace fargpu::client
