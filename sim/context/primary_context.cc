#include "sim/context/primary_context.h"

#include <utility>
#include <vector>

#include "sim/context/context.h"
#include "sim/driver/driver.h"

namespace fargpu::sim {

PrimaryContext& PrimaryContext::of(const Device& device) {
  // By ordinal; never destroyed, like the devices.
  static const auto& all = *[] {
    auto* const made = new std::vector<std::shared_ptr<PrimaryContext>>;
    for (const auto& each : Driver::get().devices()) {
      const auto primary = made->emplace_back(std::make_shared<PrimaryContext>(*each));
      primary->handle_ = reinterpret_cast<CUcontext>(Driver::get().registry().add(primary, 0));
    }
    return made;
  }();
  return *all[static_cast<size_t>(device.ordinal())];
}

std::shared_ptr<Context> PrimaryContext::get() const {
  std::lock_guard lock(mutex_);
  return context_;
}

std::shared_ptr<Context> PrimaryContext::retain() {
  std::lock_guard lock(mutex_);
  if (device_.prohibited()) return nullptr;
  if (!context_) {
    context_ = Context::create(device_, flags_, true);
    if (!context_) return nullptr;
    context_->set_handle(handle_);
  }
  ++references_;
  return context_;
}

CUresult PrimaryContext::release() {
  std::shared_ptr<Context> last;
  {
    std::lock_guard lock(mutex_);
    if (references_ == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--references_ > 0) return CUDA_SUCCESS;
    last = std::exchange(context_, nullptr);
  }
  if (last) last->destroy();  // a reset may have been before
  return CUDA_SUCCESS;
}

// The references stay, as with the driver (580): each may still be released. The next retain makes
// a new context.
void PrimaryContext::reset() {
  std::shared_ptr<Context> last;
  {
    std::lock_guard lock(mutex_);
    last = std::exchange(context_, nullptr);
    flags_ = 0;
  }
  if (last) last->destroy();
}

unsigned PrimaryContext::flags() const {
  std::lock_guard lock(mutex_);
  return flags_;
}

void PrimaryContext::set_flags(unsigned flags) {
  std::lock_guard lock(mutex_);
  flags_ = flags;
  if (context_) context_->set_flags(flags);
}

}  // namespace fargpu::sim
