#include "client/link/link.h"

#include <mutex>
#include <set>

#include "common/base/log.h"
#include "common/transport/transport.h"

namespace fargpu::client {

CUresult Link::unknown(const char* name) const {
  if (first_time(name)) {
    log::warn("{} is not known to the server (fargpu {}); a newer release there may have it", name,
              server_.version);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

void Link::set_channel(std::unique_ptr<rpc::Channel> channel) {
  channel_ = std::move(channel);
  const bool shares = zero_copy_ && channel_ != nullptr;
  descriptor_passing_ = shares ? channel_->transport().descriptor_passing() : nullptr;
  remote_memory_ = shares ? channel_->transport().remote_memory() : nullptr;
}

CUresult from_status(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return CUDA_SUCCESS;
    case StatusCode::kLost:
    case StatusCode::kTimeout:
      return process_exits.load(std::memory_order_acquire) ? CUDA_ERROR_DEINITIALIZED
                                                           : CUDA_ERROR_DEVICE_UNAVAILABLE;
    case StatusCode::kInvalidArgument:
      log::warn("{}", status.message());
      return CUDA_ERROR_INVALID_VALUE;
    case StatusCode::kUnsupported:
      log::warn("{}", status.message());
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      log::error("{}", status.message());
      return CUDA_ERROR_UNKNOWN;
  }
}

bool first_time(const char* name) {
  // Never destroyed: calls come until the very end of the process.
  static auto& mutex = *new std::mutex;
  static auto& named = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return named.insert(name).second;
}

}  // namespace fargpu::client
