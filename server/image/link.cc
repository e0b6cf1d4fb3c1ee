#include "server/image/link.h"

#include <utility>

#include "generated/server/driver_table.h"
#include "server/image/image_cache.h"

namespace fargpu::server {

Link::Link(const DriverTable& driver, uint16_t context, JitOptions options, size_t info_bytes,
           size_t error_bytes)
    : driver_(driver),
      context_(context),
      info_(info_bytes),
      errors_(error_bytes),
      options_(std::move(options)) {
  options_.add_log(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info_);
  options_.add_log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, errors_);
}

Link::~Link() {
  if (state_ != nullptr) driver_.cuLinkDestroy(state_);
}

void Link::context_has_gone() {
  const std::lock_guard lock(mutex_);
  state_ = nullptr;
}

CUresult Link::create() {
  const std::lock_guard lock(mutex_);
  return driver_.cuLinkCreate_v2(options_.count(), options_.ids(), options_.values(), &state_);
}

LinkOutcome Link::add(CUjitInputType type, const Image& input, const std::string& name,
                      JitOptions options) {
  const std::lock_guard lock(mutex_);
  if (inputs_ == kMaxInputs) return outcome(CUDA_ERROR_OUT_OF_MEMORY);
  ++inputs_;
  // PTX counts its terminator for some drivers and not for others; the image has one behind its
  // bytes in any case.
  JitOptions& kept = options_of_inputs_.emplace_back(std::move(options));
  return outcome(driver_.cuLinkAddData_v2(state_, type, const_cast<void*>(input.data()),
                                          input.size(), name.c_str(), kept.count(), kept.ids(),
                                          kept.values()));
}

LinkOutcome Link::complete() {
  const std::lock_guard lock(mutex_);
  void* made = nullptr;
  size_t bytes = 0;
  LinkOutcome out = outcome(driver_.cuLinkComplete(state_, &made, &bytes));
  if (out.result == CUDA_SUCCESS) {
    const auto* begin = static_cast<const std::byte*>(made);  // the driver's until the state goes
    out.image.assign(begin, begin + bytes);
  }
  return out;
}

LinkOutcome Link::outcome(CUresult result) const {
  return {result, text_of(info_), text_of(errors_), {}};
}

}  // namespace fargpu::server
