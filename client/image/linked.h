// The images that cuLinkComplete returned.
//
// Only the driver knows the format of a linked image. The application passes the image back as a
// bare pointer, so its length must be remembered here. Any thread.
#pragma once

#include <optional>

#include "client/image/image.h"

namespace fargpu::client {

class Session;

// The image that begins at `image`, when a live link gave it out.
std::optional<Image> linked_image(Session& session, const void* image);

}  // namespace fargpu::client
