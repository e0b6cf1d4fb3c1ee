#include "server/core/contexts.h"

#include <utility>

#include "generated/server/driver_table.h"

namespace fargpu::server {

CUresult Contexts::make_current(uint16_t id) {
  const auto found = contexts_.find(id);
  if (found == contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult result = driver_.cuCtxSetCurrent(found->second.handle); result != CUDA_SUCCESS)
    return result;
  current_ = id;
  current_number_ = found->second.number;
  current_device_ = static_cast<size_t>(found->second.device);
  return CUDA_SUCCESS;
}

void Contexts::leave() {
  current_ = 0;
  driver_.cuCtxSetCurrent(nullptr);
}

CUresult Contexts::bind(uint16_t id, CUcontext context, CUdevice device, CUgreenCtx green) {
  if (id == 0 ||
      !contexts_.try_emplace(id, Context{context, device, last_number_ + 1, green}).second)
    return CUDA_ERROR_INVALID_VALUE;
  if (green != nullptr) ++greens_;
  ++last_number_;
  // Making a context leaves it current in the driver, whatever was entered before.
  current_ = 0;
  return enter(id);
}

void Contexts::remove(uint16_t id) {
  if (green(id) != nullptr) --greens_;
  contexts_.erase(id);
  current_ = 0;
}

uint64_t Contexts::number_of(uint16_t id) const {
  const auto found = contexts_.find(id);
  return found == contexts_.end() ? 0 : found->second.number;
}

CUcontext Contexts::find(uint16_t id) const {
  const auto found = contexts_.find(id);
  return found == contexts_.end() ? nullptr : found->second.handle;
}

CUdevice Contexts::device_of(uint16_t id) const {
  const auto found = contexts_.find(id);
  return found == contexts_.end() ? 0 : found->second.device;
}

void Contexts::use_per_thread_stream() {
  if (const auto found = contexts_.find(current_); found != contexts_.end())
    found->second.per_thread_stream = true;
}

bool Contexts::uses_per_thread_stream(uint16_t id) const {
  const auto found = contexts_.find(id);
  return found != contexts_.end() && found->second.per_thread_stream;
}

CUgreenCtx Contexts::green(uint16_t id) const {
  const auto found = contexts_.find(id);
  return found == contexts_.end() ? nullptr : found->second.green;
}

std::vector<uint16_t> Contexts::greens_of(uint16_t primary) const {
  std::vector<uint16_t> found;
  if (greens_ == 0) return found;
  for (const auto& [id, context] : contexts_) {
    if (context.green != nullptr && context.device + 1 == primary) found.push_back(id);
  }
  return found;
}

std::vector<uint16_t> Contexts::ids() const {
  std::vector<uint16_t> all;
  for (const auto& [id, context] : contexts_) all.push_back(id);
  return all;
}

CUresult Contexts::borrow() {
  if (borrowed_ == nullptr) {
    if (const CUresult result = driver_.cuDevicePrimaryCtxRetain(&borrowed_, 0);
        result != CUDA_SUCCESS)
      return result;
  }
  current_ = 0;
  current_device_ = 0;
  return driver_.cuCtxSetCurrent(borrowed_);
}

void Contexts::return_borrowed() {
  if (std::exchange(borrowed_, nullptr) != nullptr) driver_.cuDevicePrimaryCtxRelease_v2(0);
}

}  // namespace fargpu::server
