// The bytes of an image: their hash, and their way to the server. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/host/sha256.h"

namespace fargpu::client {

class Session;

// The bytes of one image, which may lie in several places.
using ImageBytes = std::span<const std::span<const std::byte>>;

uint64_t size_of(ImageBytes bytes);
Sha256Digest hash_of(ImageBytes bytes);

// Sends the image as the upload of this number, packed where the session does so. fgImageUploaded
// reports its result at the server.
CUresult send_image(Session& session, const Sha256Digest& hash, ImageBytes bytes, uint64_t upload);

}  // namespace fargpu::client
