#include "server/completion.h"

#include <utility>

#include "generated/server/driver_table.h"
#include "server/request.h"
#include "server/worker_services.h"

namespace fargpu::server {

Completion::~Completion() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

CUevent Completion::take_event(uint16_t context) {
  std::vector<CUevent>& unused = events_[context];
  if (!unused.empty()) {
    const CUevent event = unused.back();
    unused.pop_back();
    return event;
  }
  CUevent event = nullptr;
  if (worker_.driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
  return event;
}

void Completion::when_reached(uint16_t context, CUstream stream, Done done) {
  const DriverTable& driver = worker_.driver();
  const CUevent event = take_event(context);
  // Without an event the stream's own state has to do; it also brings a sticky error of the context to light.
  if (event == nullptr || driver.cuEventRecord(event, stream) != CUDA_SUCCESS) {
    if (event != nullptr) events_[context].push_back(event);
    worker_.defer([this, context, stream, done = std::move(done)] {
      CUresult result = worker_.enter_context(context);
      if (result == CUDA_SUCCESS) result = worker_.driver().cuStreamQuery(stream);
      if (result == CUDA_ERROR_NOT_READY) return false;
      done(result);
      return true;
    });
    return;
  }
  worker_.defer([this, context, event, done = std::move(done)] {
    CUresult result = worker_.enter_context(context);
    if (result == CUDA_SUCCESS) {
      result = worker_.driver().cuEventQuery(event);
      if (result == CUDA_ERROR_NOT_READY) return false;
      // Done already, so this does not wait: it makes the driver write out what kernels printed.
      if (result == CUDA_SUCCESS) result = worker_.driver().cuEventSynchronize(event);
      events_[context].push_back(event);
    }
    done(result);
    return true;
  });
}

void Completion::when_idle(uint16_t context, Done done) {
  const CUcontext handle = worker_.services().find_context(context);
  if (handle == nullptr) {
    done(CUDA_ERROR_INVALID_CONTEXT);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back({handle, std::move(done)});
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_one();
}

void Completion::run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    CUresult result = worker_.driver().cuCtxSetCurrent(job.context);
    if (result == CUDA_SUCCESS) result = worker_.driver().cuCtxSynchronize();
    worker_.services().post([done = std::move(job.done), result] { done(result); });
  }
}

void Completion::forget(uint16_t context) {
  const auto found = events_.find(context);
  if (found == events_.end()) return;
  for (const CUevent event : found->second) worker_.driver().cuEventDestroy_v2(event);
  events_.erase(found);
}

}  // namespace fargpu::server
