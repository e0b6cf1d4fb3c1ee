// ImageUploads: threads that want the same image on the server at once. One of them sends it, the
// others wait for that; and only so many different images are sent at once, because the server
// keeps no more unfinished ones. Any thread; no lock is held while sending.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>

#include "common/base/sha256.h"

namespace fargpu::client {

class ImageUploads {
 public:
  // Less than what the server keeps (server/image/image_cache.h): one of a thread that failed on
  // its way may still be there.
  static constexpr size_t kAtOnce = 8;
  using Send = std::function<CUresult(uint64_t upload)>;

  // Runs send() under a number that is never used again, and puts that into *upload. But when
  // another thread is sending the image, waits until it has, whatever came of it, and leaves
  // *upload at 0.
  CUresult bring(const Sha256Digest& hash, uint64_t* upload, const Send& send);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<Sha256Digest> under_way_;
  uint64_t next_ = 1;
};

}  // namespace fargpu::client
