// ImageUploads: uploads of images to the server. Of threads that need the same image one sends it
// and the others wait. At most kAtOnce different images are sent at a time, because the server
// keeps no more unfinished ones. Any thread; no lock is held while sending.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>

#include "common/host/sha256.h"

namespace fargpu::client {

class ImageUploads {
 public:
  // Less than the server's limit (server/image/image_cache.h), which also counts uploads that were
  // abandoned after an error.
  static constexpr size_t kAtOnce = 8;
  using Send = std::function<CUresult(uint64_t upload)>;

  // Runs send() with a new number, never used again, and stores the number in *upload. If another
  // thread is sending the image, waits until that has ended, with or without success, and stores 0.
  CUresult bring(const Sha256Digest& hash, uint64_t* upload, const Send& send);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<Sha256Digest> under_way_;
  uint64_t next_ = 1;
};

}  // namespace fargpu::client
