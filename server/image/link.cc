#include "server/image/link.h"

#include <system_error>
#include <utility>

#include "generated/server/driver_table.h"
#include "server/image/mapped_image.h"

namespace fargpu::server {

bool OwnThread::run(std::function<void()> job) {
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error&) {
      return false;
    }
  }
  std::unique_lock lock(mutex_);
  job_ = std::move(job);
  changed_.notify_all();
  changed_.wait(lock, [this] { return job_ == nullptr; });
  return true;
}

OwnThread::~OwnThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void OwnThread::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || job_ != nullptr; });
    if (job_ == nullptr) return;
    job_();
    job_ = nullptr;
    changed_.notify_all();
  }
}

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
  if (state_ != nullptr) (void)there([this] { return driver_.cuLinkDestroy(state_); });
}

void Link::context_has_gone() {
  const std::lock_guard lock(mutex_);
  state_ = nullptr;
}

CUresult Link::create() {
  const std::lock_guard lock(mutex_);
  return there([this] {
    return driver_.cuLinkCreate_v2(options_.count(), options_.ids(), options_.values(), &state_);
  });
}

LinkOutcome Link::add(CUjitInputType type, const Image& input, const std::string& name,
                      JitOptions options) {
  const std::lock_guard lock(mutex_);
  if (inputs_ == kMaxInputs) return outcome(CUDA_ERROR_OUT_OF_MEMORY);
  ++inputs_;
  // PTX counts its terminator for some drivers and not for others; the image has one behind its
  // bytes in any case.
  return outcome(there([&] {
    return driver_.cuLinkAddData_v2(state_, type, const_cast<void*>(input.data()), input.size(),
                                    name.c_str(), options.count(), options.ids(), options.values());
  }));
}

LinkOutcome Link::complete() {
  const std::lock_guard lock(mutex_);
  void* made = nullptr;
  size_t bytes = 0;
  LinkOutcome out = outcome(there([&] { return driver_.cuLinkComplete(state_, &made, &bytes); }));
  if (out.result == CUDA_SUCCESS) {
    const auto* begin = static_cast<const std::byte*>(made);  // the driver's until the state goes
    out.image.assign(begin, begin + bytes);
  }
  return out;
}

CUresult Link::there(const std::function<CUresult()>& call) {
  CUcontext context = nullptr;
  CUresult result = driver_.cuCtxGetCurrent(&context);
  const bool was_run = result == CUDA_SUCCESS && thread_.run([&] {
    result = context == nullptr ? CUDA_SUCCESS : driver_.cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS) result = call();
  });
  return was_run || result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

LinkOutcome Link::outcome(CUresult result) const {
  return {result, text_of(info_), text_of(errors_), {}};
}

}  // namespace fargpu::server
