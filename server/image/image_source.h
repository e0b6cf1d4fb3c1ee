// ImageSource: where a session's images are kept beyond it, and the memory into which it brings
// them; usually the daemon. The executor's thread.
#pragma once

#include <cstdint>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/host/sha256.h"

namespace fargpu::server {

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  // Memory of so many bytes for the upload, whose number is fresh; written with pwrite().
  // kNoCapacity: there is no room for it. kSystem.
  virtual Result<Fd> begin(uint32_t upload, uint64_t bytes);
  // It is whole, and nobody writes to its memory any more. SessionImages::kept() gets the answer.
  // False: there will be none, it is not kept.
  virtual bool keep(uint32_t upload, const Sha256Digest& hash);
  // Nobody needs its memory any more.
  virtual void end(uint32_t upload);
  // The image, verified, for reading. Not valid: it is not there.
  virtual Fd find(const Sha256Digest& hash);
};

}  // namespace fargpu::server
