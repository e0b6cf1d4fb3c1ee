#include "client/process/uploads.h"

namespace fargpu::client {

CUresult ImageUploads::bring(const Sha256Digest& hash, uint64_t* upload, const Send& send) {
  *upload = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    if (under_way_.contains(hash)) {
      changed_.wait(lock, [&] { return !under_way_.contains(hash); });
      return CUDA_SUCCESS;
    }
    if (under_way_.size() < kAtOnce) break;
    changed_.wait(lock);
  }
  // Also when send() throws.
  struct UnderWay {
    ImageUploads& uploads;
    const Sha256Digest& hash;
    ~UnderWay() {
      {
        std::lock_guard lock(uploads.mutex_);
        uploads.under_way_.erase(hash);
      }
      uploads.changed_.notify_all();
    }
  };
  under_way_.insert(hash);
  const UnderWay under_way{*this, hash};
  *upload = next_++;
  lock.unlock();
  return send(*upload);
}

}  // namespace fargpu::client
