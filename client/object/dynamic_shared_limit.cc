#include "client/object/dynamic_shared_limit.h"

namespace fargpu::client {

bool DynamicSharedLimit::is(const Context& context, int device, int bytes) const {
  std::lock_guard lock(mutex_);
  const auto known = of_device_.find(device);
  return known != of_device_.end() && known->second.context == &context &&
         known->second.epoch == context.epoch.load() && known->second.bytes == bytes;
}

DynamicSharedLimit::Setting::Setting(DynamicSharedLimit& limit, const Context* context, int device)
    : limit_(limit),
      context_(context),
      epoch_(context == nullptr ? 0 : context->epoch.load()),
      device_(device) {
  std::lock_guard lock(limit_.mutex_);
  limit_.of_device_.erase(device);
  if (++limit_.settings_ > 1) limit_.at_once_ = true;
}

DynamicSharedLimit::Setting::~Setting() {
  std::lock_guard lock(limit_.mutex_);
  if (bytes_ >= 0 && context_ != nullptr && !limit_.at_once_)
    limit_.of_device_.insert_or_assign(device_, Known{context_, epoch_, bytes_});
  if (--limit_.settings_ == 0) limit_.at_once_ = false;
}

}  // namespace fargpu::client
